"""What a server does beside answering requests, the same in one process as in each of several."""

from collections.abc import Iterator
from contextlib import contextmanager

from duckicelake.catalog.services import Services
from duckicelake.cli.assembly.deliveries import deliveries_of
from duckicelake.cli.service.delta_follower import delta_follower_of
from duckicelake.cli.service.delta_keeper import delta_keeper_of
from duckicelake.cli.service.flusher import flusher_of
from duckicelake.cli.service.following import follower_of
from duckicelake.cli.service.lineage_events import events_of
from duckicelake.cli.service.recording import recorder_of
from duckicelake.cli.service.upload_collector import upload_collector_of
from duckicelake.cli.service.warehouse_watch import warehouse_watch_of
from duckicelake.settings import Settings


@contextmanager
def in_background(settings: Settings, services: Services) -> Iterator[None]:
    """Do it for as long as the context lasts."""
    with (
        warehouse_watch_of(settings, services),
        follower_of(settings, services),
        deliveries_of(settings, services),  # which ends last
        recorder_of(settings, services),
        events_of(settings, services),
        delta_follower_of(settings, services),
        flusher_of(settings, services),
        delta_keeper_of(settings, services),
        upload_collector_of(settings, services),
    ):
        yield
