"""Measurements of collectives: the records of files, their cluster, and the algorithms that NCCL ran."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ringside.sim.libraries.find import Options
from ringside.sim.libraries.nccl.bind import fallback
from ringside.sim.libraries.nccl.cluster import is_machine
from ringside.sim.libraries.nccl.graph.system import listed_system
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.libraries.nccl.releases import names_one
from ringside.sim.record import Record, collective_of
from ringside.topologies.load import parse_name
from ringside.validation.machines import (
    check_one_cluster,
    infer_machine,
    network_of,
    other_gpus,
    said,
    with_nodes,
)
from ringside.validation.readers import read_all


@dataclass(frozen=True, slots=True)
class Measurements:
    """Records, and the cluster that they were made on with changed ``settings``.

    ``ran`` are the records with the algorithms that NCCL used in place of impossible ones, which
    ``fallbacks`` lists, a sentence each. ``source`` is the evidence for the cluster's name. ``skipped``
    counts rows without a usable time, ``omissions`` lists other gaps of the files. ``warning`` reports GPUs
    or cards other than the cluster's; ``network`` says what the log's own lines tell of the network between
    nodes, empty for nothing, or for one node.
    """

    records: Sequence[Record]
    ran: Sequence[Record]
    cluster: str
    settings: Mapping[str, str]
    fallbacks: Sequence[str] = ()
    source: str = "as given"
    skipped: int = 0
    omissions: Sequence[str] = ()
    warning: str = ""
    network: str = ""


def read_measurements(
    files: Sequence[Path], cluster: str | None, settings: Mapping[str, str], *, pool_sites: bool = False
) -> Measurements:
    """Read files; without a cluster infer it. Raise `RecordError` for files without usable records."""
    reading = read_all(files)
    source = "as given"
    if cluster is None:
        cluster, source = infer_machine(reading.records)
    network = network_of(reading.records) if any(one.num_nodes != 1 for one in reading.records) else ""
    return replace(
        measurements_of(reading.records, cluster, settings, pool_sites=pool_sites),
        source=source,
        skipped=reading.skipped,
        omissions=reading.notes,
        warning=_others_than(reading.records, cluster),
        network=f"network, by the log's lines: {network}" if network else "",
    )


def measurements_of(
    records: Sequence[Record], cluster: str, settings: Mapping[str, str], *, pool_sites: bool = False
) -> Measurements:
    """Return the records as one cluster's; raise `RecordError` for records that must not be mixed."""
    check_one_cluster(records, cluster, pool_sites=pool_sites)
    ran = as_run(records, cluster, settings)
    fallbacks = dict.fromkeys(
        f"NCCL_ALGO={record.algorithm} names nothing that {cluster} supports for {record.collective}, "
        f"so NCCL fell back to NCCL_ALGO={as_it_ran.algorithm}"
        for record, as_it_ran in zip(records, ran, strict=True)
        if as_it_ran.algorithm != record.algorithm
    )
    return Measurements(records, ran, cluster, settings, list(fallbacks))


def _others_than(records: Sequence[Record], cluster: str) -> str:
    """Say which GPUs or cards of the records are not the cluster's; empty for none."""
    gpus, cards = other_gpus(records, cluster), said(records, "cards")
    texts = [f"measured on {', '.join(gpus)}, which {cluster} does not have"] if gpus else []
    system = listed_system(parse_name(cluster).machine)
    if cards and system and system.nics != int(cards) and any(record.num_nodes > 1 for record in records):
        texts.append(
            f"the log lists {cards} cards of {said(records, 'network')} a node and {cluster} has "
            f"{system.nics}: where all of them carry NCCL's traffic it is another machine"
        )
    return "; ".join(texts)


def as_run(records: Sequence[Record], cluster: str, settings: Mapping[str, str]) -> list[Record]:
    """Return the records with the algorithms that NCCL used in place of impossible ones."""
    used: dict[tuple[str | int, ...], str] = {}
    ran = []
    knows_machines = any(_is_pinned(record) for record in records) and is_machine(cluster)
    for record in records:
        if not (knows_machines and _is_pinned(record)):
            ran.append(record)
            continue
        key = (
            *(record.library_version, record.num_nodes, record.ranks, record.collective),
            *(record.algorithm, record.protocol, record.dtype, record.redop),
        )
        if key not in used:
            name = with_nodes(cluster, record.num_nodes, record.ranks)
            used[key] = fallback(collective_of(record), name, settings, options_of(record))
        ran.append(replace(record, algorithm=used[key]))
    return ran


def options_of(record: Record, network: str = "fifo") -> Options:
    """Return the library's options that a record names; of an unknown release of NCCL those of the newest."""
    options = Options(record.algorithm, record.protocol, network=network)
    if record.library != Nccl.name:
        return options
    environment = record.fingerprint.get("environment", "")
    return replace(
        options,
        collnet=record.algorithm == "auto" and "NCCL_COLLNET_ENABLE=1" in environment,
        nvls="NCCL_NVLS_ENABLE=0" not in environment,
        nccl_version=record.library_version if names_one(record.library_version) else None,
        gpus_per_thread=int(record.fingerprint.get("gpus_per_thread", 1)),
        threads_per_process=int(record.fingerprint.get("threads_per_process", 1)),
        torch=_is_timed_by_torch(record),
    )


def _is_timed_by_torch(record: Record) -> bool:
    """Return whether a script of PyTorch's timed the calls one by one, as `ringside measure` does."""
    script = record.fingerprint.get("command", "").partition(" ")[0].endswith(".py")
    return script or "torch" in record.fingerprint


def _is_pinned(record: Record) -> bool:
    return record.library == Nccl.name and record.algorithm != "auto"
