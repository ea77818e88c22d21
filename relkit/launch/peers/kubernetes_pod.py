"""Pods whose names are numbered: a JobSet, an indexed Job, DLRover's ElasticJob.

An indexed Job calls its pods JOB-INDEX, and a JobSet JOBSET-REPLICATEDJOB-JOBINDEX-INDEX; with a
headless service each resolves below the service's name (Kubernetes' documentation, "Job with
Pod-to-Pod Communication"). DLRover's operator makes a service for each worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from relkit.launch.peers.rendezvous_host import NoRendezvousHost, RendezvousHost, is_zero, number

# The port of the services that DLRover makes for workers.
_ELASTIC_JOB_PORT = 3333
_ELASTIC_JOB_POD = re.compile(r"(?P<workers>[a-z0-9.-]+-edljob-[a-z]+)-\d+")


def elastic_job(environ: Mapping[str, str]) -> RendezvousHost | None:
    """The service of the first worker of an ElasticJob; None elsewhere.

    Args:
        environ: of this process.
    """
    pod = _ELASTIC_JOB_POD.fullmatch(environ.get("POD_NAME", ""))
    is_first = is_zero(environ.get("NODE_RANK"))
    if pod is None or is_first is None:
        return None
    workers = pod["workers"]
    nodes = number(environ.get("NODE_NUM")) or 0
    return RendezvousHost(
        f"ElasticJob {workers.partition('-edljob-')[0]}", workers, f"{workers}-0",
        _ELASTIC_JOB_PORT, is_first, nodes,
    )  # fmt: skip


def indexed_job(environ: Mapping[str, str], full_name: str) -> RendezvousHost | None:
    """The first pod of an indexed Job or JobSet; None elsewhere.

    Args:
        environ: of this process.
        full_name: of this pod, with the domain that its headless service gives it.

    Raises:
        NoRendezvousHost: pods of this Job cannot be reached by name.
    """
    index = number(environ.get("JOB_COMPLETION_INDEX"))
    if index is None:
        return None
    host, _, domain = full_name.partition(".")
    job, dash, last = host.rpartition("-")
    if not dash or last != str(index):
        raise NoRendezvousHost(
            f"this is pod {index} of an indexed Job, but it is called {host!r} and not JOB-{index}"
        )
    if not domain:
        raise NoRendezvousHost(
            f"this is pod {index} of the indexed Job {job!r}, whose pods cannot be reached by name",
            next_step="Make a headless service, and name it as `subdomain` in the pods' "
            "template; a JobSet does so by itself.",
        )
    service = re.escape(domain.partition(".")[0])
    of_set = re.fullmatch(rf"(?P<jobs>{service}-.+)-(?P<number>\d+)", job)
    if of_set is None:
        source, first_job = f"indexed Job {job}", job
    else:
        # A JobSet's service is called as it is itself. Each of its Jobs counts pods from 0.
        first_job = f"{of_set['jobs']}-0"
        source = f"JobSet {domain.partition('.')[0]}"
    is_first = index == 0 and job == first_job
    return RendezvousHost(
        source, f"{first_job}.{domain}", f"{first_job}-0.{domain}", is_first=is_first
    )
