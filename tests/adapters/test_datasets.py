"""dataset_mapper with the real datasets: new columns, one budget, and the cache knows the function again."""

from pathlib import Path

import pytest
from datasets import Dataset, load_dataset
from pydantic import BaseModel

from backstay.adapters import dataset_mapper
from backstay.core.errors import UsageError
from tests.adapters.conftest import AdapterSite

pytestmark = pytest.mark.slow


class Review(BaseModel):
    mood: str
    stars: int
    note: str | None = None
    tags: list[str]


def rows_of(folder: Path, count: int) -> Dataset:
    (folder / "rows.csv").write_text("text\n" + "".join(f"row {n}\n" for n in range(count)))
    return load_dataset("csv", data_files=str(folder / "rows.csv"), cache_dir=str(folder / "cache"), split="train")


def test_rows_get_the_columns_of_an_answer(site: AdapterSite, tmp_path: Path) -> None:
    made = rows_of(tmp_path, 10).map(dataset_mapper("Say {text}", **site.options), batched=True, batch_size=4)
    assert made.column_names == ["text", "answer", "cost", "error"]
    assert [text.split(" ", 2)[2] for text in made["answer"]] == [f"Say row {n}" for n in range(10)]
    assert made["error"][:] == [""] * 10
    assert site.paid == 10


def test_the_cache_of_datasets_knows_the_function_again(site: AdapterSite, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 4)
    first = rows.map(dataset_mapper("{text}", schema=Review, **site.options), batched=True)
    again = rows.map(dataset_mapper("{text}", schema=Review, **site.options), batched=True)
    other = rows.map(dataset_mapper("Rate {text}", schema=Review, **site.options), batched=True)
    assert first.cache_files == again.cache_files
    assert first.cache_files != other.cache_files
    assert first.column_names == ["text", "mood", "stars", "note", "tags", "cost", "error"]
    assert isinstance(first[0]["stars"], int)
    assert isinstance(first[0]["tags"], list)
    assert site.paid == 8


def test_several_processes_share_the_work_but_no_budget(site: AdapterSite, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 6)
    made = rows.map(dataset_mapper("{text}", **site.options), batched=True, num_proc=2)
    assert [text.split(" ", 2)[2] for text in made["answer"]] == [f"row {n}" for n in range(6)]
    with pytest.raises(UsageError, match="budget cannot be kept"):
        rows.map(dataset_mapper("{text}", **site.with_options(budget=5, max_tokens=9)), batched=True, num_proc=2)


def test_a_bad_row_has_an_error_and_the_others_an_answer(site: AdapterSite) -> None:
    rows = Dataset.from_dict({"text": ["a", "b", None, "c"]})
    made = rows.map(dataset_mapper("{text}", **site.options), batched=True, batch_size=2)
    assert [text is None for text in made["answer"]] == [False, False, True, False]
    assert [bool(error) for error in made["error"]] == [False, False, True, False]
    assert "has no value" in made[2]["error"]
    assert site.paid == 3


def test_a_budget_is_for_all_batches(site: AdapterSite) -> None:
    site.practice.change(answer_tokens=100)
    rows = Dataset.from_dict({"text": [f"row {n}" for n in range(20)]})
    options = site.with_options(budget=0.0008, max_tokens=100, concurrency=2)
    made = rows.map(dataset_mapper("{text}", **options), batched=True, batch_size=5)
    failed = [error for error in made["error"] if error]
    assert 0 < len(failed) < 15
    assert all(error.startswith("budget:") for error in failed)
    assert site.practice.bill.total.cost_micros <= 800


def test_what_a_dataset_cannot_do_is_refused(site: AdapterSite) -> None:
    with pytest.raises(UsageError, match="samples works with map"):
        dataset_mapper("{text}", **site.with_options(samples=2))
    with pytest.raises(UsageError, match="no option 'modle'"):
        dataset_mapper("{text}", **site.with_options(modle="x"))
