"""An order and its job in one transaction of a SQLAlchemy session: both exist, or neither.

    python sqlalchemy_app.py

SHOP_DATABASE says where the database is: SQLite, or PostgreSQL with psycopg 3 after `backstay migrate`.
"""

import os

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from backstay import Backstay, SyncBackstay

URL = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
app = Backstay(URL)
engine = create_engine(URL.replace("postgresql://", "postgresql+psycopg://"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    pdf: Mapped[str]


@app.handler(retry="gateway", timeout=60)
async def convert(item: dict[str, int]) -> str:
    return f"order {item['order']} is converted"  # call your slow, flaky, paid service here


def place_order(backstay: SyncBackstay, pdf: str) -> int:
    """The id of the job. If anything raises, there is neither an order nor a job."""
    with Session(engine) as session, session.begin():
        order = Order(pdf=pdf)
        session.add(order)
        session.flush()  # gives the order its id
        job = backstay.submit(convert, [{"order": order.id}], connection=session)
        if not pdf.endswith(".pdf"):
            raise ValueError(f"{pdf} is not a PDF")
        return job.id


def main() -> None:
    with SyncBackstay(app) as backstay:  # opened before the first transaction
        Base.metadata.create_all(engine)
        with backstay.working():
            job = backstay.job(place_order(backstay, "a.pdf"))
            job.wait()
            for result in job.results():
                print(result.item, result.state, result.value or result.message)
            try:
                place_order(backstay, "a.exe")
            except ValueError as error:
                print(f"refused: {error}")
    with Session(engine) as session:
        print(f"{session.query(Order).count()} order")


if __name__ == "__main__":
    main()
