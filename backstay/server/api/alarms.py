"""Alarms: which are raised. They watch the whole database, so only the service's own people see them."""

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.core.alarms import WORDING, Alarm
from backstay.server import etags
from backstay.server.auth import Operator
from backstay.server.service import Serving
from backstay.server.shapes import PROBLEMS
from backstay.store.alarms import AlarmStanding

router = APIRouter(prefix="/api/alarms", tags=["alarms"], responses=PROBLEMS)


class AlarmShape(BaseModel):
    id: Alarm
    raised: bool
    value: int = Field(description="the last reading; shares are in percent, ages in seconds")
    bound: int = Field(description="the alarm is raised above this value")
    raised_at: int
    cleared_at: int | None
    text: str
    advice: str


class AlarmsShape(BaseModel):
    data: list[AlarmShape]


@router.get("", response_model=AlarmsShape)
async def list_alarms(who: Operator, service: Serving) -> Response:
    """Lists raised alarms first, then past ones. Alarms that were never raised are not listed."""
    data = [_alarm_object(standing) for standing in await service.store.alarms.known()]
    return Response(to_json({"data": data}), media_type=etags.JSON)


def _alarm_object(standing: AlarmStanding) -> dict[str, object]:
    reading = standing.reading
    return {
        "id": reading.alarm,
        "raised": standing.cleared_at is None,
        "value": reading.value,
        "bound": reading.bound,
        "raised_at": standing.raised_at,
        "cleared_at": standing.cleared_at,
        "text": reading.words,
        "advice": WORDING[reading.alarm].advice,
    }
