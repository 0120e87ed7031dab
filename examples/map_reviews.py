"""From a CSV file to a typed frame, under a budget: killed and started again, it goes on and pays for nothing twice."""

from pydantic import BaseModel

import backstay


class Review(BaseModel):
    mood: str
    stars: int


answers = backstay.map("reviews.csv", "Rate this review: {text}", model="gpt-5-mini", schema=Review, budget=5.00)
print(answers.to_pandas())  # the columns of the file, mood, stars, cost, error
