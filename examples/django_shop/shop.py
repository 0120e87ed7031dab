"""A Django project in one file: an order and its job are one transaction, and `@task` functions are durable jobs.

    python manage.py migrate --run-syncdb
    python manage.py runserver                # curl -d pdf=a.pdf http://127.0.0.1:8000/orders
    python manage.py backstay_worker          # in another terminal

SHOP_FILE says where the database is. On PostgreSQL, run `backstay migrate` first. Django 6 has tasks itself; before, it
needs the package django-tasks.
"""

import os
import sys

import django
from django.apps import apps
from django.conf import settings

from backstay import Backstay

FILE = os.path.abspath(os.environ.get("SHOP_FILE", "shop.db"))
app = Backstay(f"sqlite:///{FILE}")

# Most projects have all this in settings.py.
BACKSTAY_APP = "shop:app"
TASKS = {"default": {"BACKEND": "backstay.django.tasks.BackstayBackend"}}
settings.configure(
    SECRET_KEY=os.environ.get("SHOP_SECRET", "only for this example"),
    ALLOWED_HOSTS=["localhost", "127.0.0.1", "testserver"],
    ROOT_URLCONF="shop",
    INSTALLED_APPS=["shop", "backstay.django"],
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FILE, "OPTIONS": {"timeout": 30}}},
    BACKSTAY_APP=BACKSTAY_APP,
    TASKS=TASKS,
)
django.setup()
apps.app_configs["shop"].models_module = sys.modules[__name__]  # a larger project has a file models.py

from django.db import connection, models, transaction  # noqa: E402
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django_tasks import default_task_backend, task  # noqa: E402 - Django 6: from django.tasks
from django_tasks.exceptions import TaskResultDoesNotExist  # noqa: E402

from backstay.django import shared_backstay  # noqa: E402
from backstay.django.tasks import add_task_handler  # noqa: E402


class Order(models.Model):  # type: ignore[misc]  # Django has no types
    pdf = models.TextField()
    text = models.TextField(default="")


@app.handler(retry="gateway", timeout=60)
def convert(item: dict) -> str:
    """Calls your slow, flaky, paid service. A handler without `async` has a thread of its own, as Django wants it."""
    try:
        order = Order.objects.get(id=item["order"])
        order.text = order.pdf.upper()
        order.save()
        return order.text
    finally:
        connection.close()


add_task_handler(app, timeout=60)


@task
def greet(name: str, *, loud: bool = False) -> str:
    return f"Hello {name}{'!' if loud else ''}"


@transaction.atomic
def create_order(request: HttpRequest) -> HttpResponse:
    """The job exists if and only if the order does."""
    order = Order.objects.create(pdf=request.POST["pdf"])
    job = shared_backstay().submit(convert, [{"order": order.id}], connection=connection)
    if not order.pdf.endswith(".pdf"):
        transaction.set_rollback(True)
        return HttpResponse(status=422)
    return JsonResponse({"order": order.id, "job": job.id}, status=202)


def show_order(request: HttpRequest, number: int) -> HttpResponse:
    found = Order.objects.filter(id=number).first()
    if found is None:
        raise Http404
    return JsonResponse({"order": found.id, "text": found.text})


def create_greeting(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"task": greet.enqueue(request.POST["name"], loud=True).id}, status=202)


def show_greeting(request: HttpRequest, result_id: str) -> HttpResponse:
    try:
        result = default_task_backend.get_result(result_id)
    except TaskResultDoesNotExist:
        raise Http404 from None
    value = result.return_value if result.status == "SUCCESSFUL" else None
    return JsonResponse({"status": result.status, "value": value})


urlpatterns = [
    path("orders", create_order),
    path("orders/<int:number>", show_order),
    path("greetings", create_greeting),
    path("greetings/<str:result_id>", show_greeting),
]
