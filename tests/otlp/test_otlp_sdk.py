"""Real OpenTelemetry SDK exporters (protobuf over HTTP, gzip, batching) against the real API on a real socket."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from otlp_samples import CHAT
from otlp_server import Server
from sqlalchemy import Engine, text

from core.errors import DiskFull, Unavailable
from streaming.counter_topic import import_counters

pytestmark = pytest.mark.db
RESOURCE = Resource.create({"service.name": "shop", "tokenfuse.team": "search"})
NEVER_MS = 3_600_000
CALLS = 1_300


@pytest.fixture(autouse=True)
def real_time(server: Server) -> None:
    server.clock.at = None


@pytest.fixture
def tracers(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    """As an application is told by environment: base endpoint, headers, compression."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{server.url}/otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"Authorization=Bearer%20{server.token('ingest')}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), max_queue_size=10_000, schedule_delay_millis=NEVER_MS))
    yield provider
    provider.shutdown()


def headers(server: Server) -> dict[str, str]:
    return {"authorization": f"Bearer {server.token('ingest')}"}


@pytest.mark.parametrize("first", ["the gateway", "the application"])
def test_a_call_told_by_gateway_and_application_counts_once(server: Server, tracers: TracerProvider, first: str) -> None:
    """Two processes with exporters of their own, one trace, no response id."""
    gateway = TracerProvider(resource=Resource.create({"service.name": "gateway"}))
    gateway.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=NEVER_MS))
    for _ in range(3):
        with tracers.get_tracer("app").start_as_current_span("chat llama", kind=SpanKind.CLIENT, attributes=CHAT):
            gateway.get_tracer("proxy").start_span("chat llama", kind=SpanKind.SERVER, attributes=CHAT).end()
    for provider in (gateway, tracers) if first == "the gateway" else (tracers, gateway):
        assert provider.force_flush()
    gateway.shutdown()
    assert len(server.log.records()) == 3


def test_spans_arrive_and_count_exactly(server: Server, tracers: TracerProvider) -> None:
    tracer = tracers.get_tracer("app")
    for number in range(CALLS):
        with tracer.start_as_current_span("agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
            call = tracer.start_span("chat llama", kind=SpanKind.CLIENT, attributes={**CHAT, "gen_ai.usage.input_tokens": number})
            call.set_attribute("gen_ai.input.messages", "never read")
            if number % 100 == 0:
                call.set_status(Status(StatusCode.ERROR, "never read"))
            call.end()
    assert tracers.force_flush()
    records = server.log.records()
    assert len({record["request_id"] for record in records}) == len(records) == CALLS
    assert sum(record["tokens"]["input_uncached"] for record in records) == sum(range(CALLS))
    assert sum(record["tokens"]["output"] for record in records) == 20 * CALLS
    assert sum(record["status"] == "error" for record in records) == CALLS // 100
    assert {record["tenant"]["team"] for record in records} == {"search"}


@pytest.mark.parametrize("refusal", [DiskFull("full", retry_after_s=0), Unavailable("away", retry_after_s=0)])
def test_a_batch_that_was_refused_is_sent_again_and_counts_once(
    server: Server, tracers: TracerProvider, refusal: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    server.log.refusals += [refusal, refusal]
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            tracers.get_tracer("app").start_span("chat llama", kind=SpanKind.CLIENT, attributes=CHAT).end()
        assert tracers.force_flush()
    assert "Transient error" in caplog.text
    assert server.log.refusals == []
    assert len(server.log.records()) == 3


@pytest.mark.parametrize("temporality", [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA])
@pytest.mark.parametrize("exponential", [False, True])
def test_token_metrics_arrive_and_each_token_counts_once(
    server: Server, db: Engine, temporality: AggregationTemporality, exponential: bool
) -> None:
    exporter = OTLPMetricExporter(
        f"{server.url}/v1/metrics", headers=headers(server), compression=Compression.Gzip,
        preferred_temporality={Counter: temporality, Histogram: temporality},
    )  # fmt: skip
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=NEVER_MS)
    views = [View(instrument_name="gen_ai.*", aggregation=ExponentialBucketHistogramAggregation())] if exponential else []
    provider = MeterProvider([reader], resource=RESOURCE, views=views)
    meter = provider.get_meter("app")
    usage = meter.create_histogram("gen_ai.client.token.usage", unit="{token}")
    requests = meter.create_counter("http.requests")
    for number in range(5):
        for kind, tokens in (("input", 100 + number), ("output", 20), ("cached_input", 64)):
            usage.record(tokens, {"gen_ai.token.type": kind, "gen_ai.request.model": "llama", "gen_ai.provider.name": "vllm"})
        requests.add(1)
        provider.force_flush()
    provider.shutdown()
    appended = len(server.log.lines("counter"))
    assert import_counters(db, server.folder / "log", server.clock()) == appended >= 15
    with db.connect() as connection:
        query = text("SELECT token_type, sum(tokens)::bigint FROM gateway_counter_minute GROUP BY token_type")
        found = dict(connection.execute(query).tuples().all())
    assert found == {"input": 510, "output": 100, "cached_input": 320}


def test_logs_arrive_and_count(server: Server) -> None:
    provider = LoggerProvider(resource=RESOURCE)
    exporter = OTLPLogExporter(f"{server.url}/v1/logs", headers=headers(server), compression=Compression.Gzip)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter, schedule_delay_millis=NEVER_MS))
    logger = provider.get_logger("app")
    for number in range(600):
        logger.emit(
            event_name="gen_ai.client.inference.operation.details",
            body="never read",
            attributes={**CHAT, "gen_ai.response.id": f"chatcmpl-{number}"},
        )
        logger.emit(body="another log line", attributes={"level": "info"})
    assert provider.force_flush()
    provider.shutdown()
    records = server.log.records()
    assert len({record["request_id"] for record in records}) == len(records) == 600
    assert sum(record["tokens"]["input_uncached"] for record in records) == 60_000
