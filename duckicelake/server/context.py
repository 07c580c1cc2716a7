"""What the app holds for its routes, as FastAPI dependencies. They are async so that no thread is spent on them."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from duckicelake.catalog.services import Services
from duckicelake.server.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Context:
    """warehouses: the names by which clients may ask for the one warehouse there is."""

    services: Services
    metrics: Metrics
    warehouses: frozenset[str]


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


async def _services(request: Request) -> Services:
    services: Services = request.app.state.context.services
    return services


AppContext = Annotated[Context, Depends(_context)]
AppServices = Annotated[Services, Depends(_services)]
