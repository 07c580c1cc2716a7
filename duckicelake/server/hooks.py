"""What a feature adds to the HTTP server."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastapi import APIRouter
from pydantic import BaseModel

from duckicelake.server.auth.permissions import Need


@dataclass(frozen=True, slots=True)
class FeatureRoutes:
    """The routes of a feature.

    Attributes:
        needs: who may use each route, by method and route template.
        request_models: bodies that endpoints parse in their own thread, which FastAPI does not see.

    """

    routers: tuple[APIRouter, ...]
    needs: Mapping[tuple[str, str], Need]
    request_models: tuple[type[BaseModel], ...] = field(default=())
