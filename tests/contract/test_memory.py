"""The in-memory fakes keep the rules of their ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coldstream.adapters.memory import (
    MemoryCatalog,
    MemoryHeartbeats,
    MemoryObjectStore,
    MemoryOffsets,
    MemoryPolicies,
    MemoryWorkflows,
)
from coldstream.manifest.catalog import StreamState
from coldstream.ports import (
    Catalog,
    Composer,
    ConsumerOffsets,
    Deleter,
    Execution,
    ExecutionStatus,
    Heartbeats,
    ObjectStore,
    Policies,
    VersionDeleter,
    Workflows,
)
from coldstream_devkit.suites.adoption import AdoptionRaceSuite
from coldstream_devkit.suites.catalog import CatalogRaceSuite, CatalogSuite
from coldstream_devkit.suites.compose import ComposerSuite
from coldstream_devkit.suites.delete import DeleterSuite
from coldstream_devkit.suites.heartbeats import HeartbeatsSuite
from coldstream_devkit.suites.object_store import ObjectStoreRaceSuite, ObjectStoreSuite
from coldstream_devkit.suites.odd_keys import OddKeysDeleteSuite, OddKeysSuite
from coldstream_devkit.suites.offsets import MOST, OffsetsSuite
from coldstream_devkit.suites.policies import PoliciesRaceSuite, PoliciesSuite
from coldstream_devkit.suites.state import RulesSuite, StateRaceSuite, StateSuite
from coldstream_devkit.suites.versions import VersionDeleterSuite
from coldstream_devkit.suites.workflows import WORKFLOW, WorkflowsSuite


class TestMemoryObjectStore(ObjectStoreSuite, OddKeysSuite, ObjectStoreRaceSuite):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjectStore()


class TestMemoryChanges(DeleterSuite, OddKeysDeleteSuite, ComposerSuite):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjectStore()

    @pytest.fixture
    def deleter(self, store: ObjectStore) -> Deleter:
        assert isinstance(store, MemoryObjectStore)
        return store

    @pytest.fixture
    def composer(self, store: ObjectStore) -> Composer:
        assert isinstance(store, MemoryObjectStore)
        return store


class TestMemoryVersions(VersionDeleterSuite):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryObjectStore(versioned=True)

    @pytest.fixture
    def deleter(self, store: ObjectStore) -> Deleter:
        assert isinstance(store, MemoryObjectStore)
        return store

    @pytest.fixture
    def versions(self, store: ObjectStore) -> VersionDeleter:
        assert isinstance(store, MemoryObjectStore)
        return store


class TestMemoryPolicies(PoliciesSuite, PoliciesRaceSuite):
    @pytest.fixture
    def policies(self) -> Policies:
        return MemoryPolicies()


class TestMemoryHeartbeats(HeartbeatsSuite):
    @pytest.fixture
    def heartbeats(self) -> Heartbeats:
        return MemoryHeartbeats()


class TestMemoryOffsets(OffsetsSuite):
    @pytest.fixture
    def offsets(self) -> ConsumerOffsets:
        return MemoryOffsets(most=MOST)


class TestMemoryWorkflows(WorkflowsSuite):
    @pytest.fixture
    def workflows(self) -> Workflows:
        return MemoryWorkflows(WORKFLOW)

    @pytest.fixture
    def end(self, workflows: Workflows) -> Callable[[str], None]:
        def stop(name: str) -> None:
            assert isinstance(workflows, MemoryWorkflows)
            workflows.executions[WORKFLOW, name] = Execution(
                ExecutionStatus.ABORTED, error="Stopped", cause="by a test"
            )

        return stop

    def given(self, workflows: Workflows, name: str) -> dict[str, Any]:
        assert isinstance(workflows, MemoryWorkflows)
        return workflows.inputs[WORKFLOW, name]


class TestMemoryCatalog(
    CatalogSuite, CatalogRaceSuite, StateSuite, StateRaceSuite, RulesSuite, AdoptionRaceSuite
):
    @pytest.fixture
    def policies(self) -> Policies:
        return MemoryPolicies()

    @pytest.fixture
    def catalog(self, policies: Policies) -> Catalog:
        assert isinstance(policies, MemoryPolicies)
        return MemoryCatalog(policies=policies)

    def set_state(self, catalog: Catalog, stream: str, state: StreamState) -> None:
        assert isinstance(catalog, MemoryCatalog)
        catalog.items[stream] = replace(catalog.items[stream], state=state)
