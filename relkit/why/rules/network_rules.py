"""Lines of NCCL, gloo, torch's process groups and the network under them -> causes."""

from __future__ import annotations

from relkit.why.rules.line_rule import line_rule as _rule
from relkit.why.rules.told import Kind

_ROOT, _WEAK, _AFTER = Kind.ROOT, Kind.WEAK, Kind.CONSEQUENCE

# What says that a peer has gone comes first.
NETWORK = (
    _rule("barrier", _WEAK, r"\branks? (?P<ranks>[\d, ]+) failed to pass monitoredbarrier"),
    _rule(
        "barrier",
        _WEAK,
        r"monitoredbarrier, but received errors .*from rank (?P<ranks>\d+)",
    ),
    _rule(
        "collective-mismatch",
        _ROOT,
        r"mismatch between collectives|collectives differ in the following|"
        r"mismatch\w* collective|appears not to match (?:strides|sizes) of the same param|"
        r"ddp expects same model across all ranks",
    ),
    _rule(
        "unused-parameters",
        _ROOT,
        r"expected to have finished reduction in the prior iteration|"
        r"parameters that were not used in producing",
    ),
    _rule(
        "peer-lost",
        _AFTER,
        r"ncclremoteerror|remote process exited|(?:connection|socket).*(?:reset|closed|shut ?down) "
        r"by (?:remote )?peer|connection closed by|connection reset|broken pipe|"
        r"closed by (?:remote )?peer|recvbytes failed|sendbytes.*failed|failed to recv, got 0|"
        r"recvvalue.*failed|nccl communicator was aborted|communicator .*(?:was|is) aborted|"
        r"(?:socket|connection) (?:was |has been )?(?:closed|shut ?down)|"
        r"tcpstore.*(?:connection|closed|shut)|could(?:n't| not) .*(?:store|heartbeat)|"
        r"failed to (?:check|get).*(?:dump|store).*tcpstore|should dump.*tcpstore|"
        r"remote host closed|peer .*(?:exited|died|gone)",
    ),
    _rule(
        "peer-lost",
        _AFTER,
        r"tear(?:ing)? (?:the )?(?:entire )?process down|taking the (?:entire )?process down|"
        r"actor .*(?:died|is dead)|workercrashederror|actordiederror|"
        r"to avoid (?:data )?inconsisten|another (?:rank|process|worker) (?:has )?(?:failed|died)|"
        r"aborting due to .*(?:other|another|remote)",
    ),
    _rule(
        "rendezvous",
        _ROOT,
        r"rendezvous(?:timeout|connection)error|rdzv.*time(?:d ?)?out|rendezvous.*timed? ?out|"
        r"timed out .*(?:rendezvous|clients? (?:to )?join)|"
        r"\d+/\d+ (?:clients|workers) (?:have )?joined|"
        r"client socket has timed out .*connect|failed to connect to .*(?:store|master)|"
        r"store[- ]based barrier.*tim|connect\w* to the c10d store (?:has )?failed|"
        r"tcp client failed to connect|"
        r"(?:could not|failed to|unable to) (?:reach|resolve|connect to) .*(?:master|rdzv|rendezv)|"
        r"connect.*(?:master|rendezvous).*(?:refused|unreachable|name or service)",
    ),
    _rule(
        "port-in-use", _ROOT, r"address already in use|eaddrinuse|port \d+ is (?:already )?in use"
    ),
    _rule(
        "collective-timeout",
        _WEAK,
        r"watchdog caught collective operation timeout|watchdog got stuck|"
        r"(?:collective|operation|work\w*|wait\w*|monitoredbarrier|barrier).*timed? ?out|"
        r"\b[hnrx]ccl \w+ time-?out|getting socket times out|remote rank did not send|"
        r"timed out waiting \d+ ?ms for (?:recv|send)|"
        r"execution of the notify register times out|application timeout caused pair|"
        r"heartbeat monitor timed out|ran for \d+ milliseconds before timing out",
    ),
    _rule(
        "collective-timeout",
        _AFTER,
        r"detected by watchdog|watchdog thread terminated|processgroup\w+.*(?:dump|abort|"
        r"timeout|heartbeat)",
    ),
    # A kernel says so also of ports that nobody uses, and of those that come up again.
    _rule(
        "network",
        _WEAK,
        r"\b(?:mlx\d_core|bnxt_en|i40e|ixgbe|ib\d+|e(?:n\w+|th\d+))\b.*\blink (?:is )?down",
    ),
    _rule(
        "network",
        _ROOT,
        r"net/ib.*(?:error|fail|timed?|wc|async)|ibv_\w+.*(?:fail|error)|"
        r"ib_?wc\w*_err|transport retry|local qp operation err|remote access error|"
        r"got completion .*(?:error|status)|completion with error|"
        r"ibvwrap.*(?:fail|error)|"
        r"net/(?:ofi|socket).*(?:error|fail)|"
        r"no route to host|network is (?:unreachable|down)|link (?:is )?down|nccl error.*ibv|"
        r"mlx\d_\d.*(?:error|fail|down)|unable to (?:find|use) .*(?:ib|interface|nic)|"
        r"bootstrap : no socket interface|no socket interface found",
    ),
    _rule(
        "nccl",
        _WEAK,
        r"unhandled (?:system|cuda) error|nccl(?:system|unhandledcuda|internal)error|"
        r"(?:nccl|rccl|hccl|oneccl) (?:error|failure|internal error)|internal error.*nccl|"
        r"nccl_?(?:error|fail)|dist\w*backenderror",
    ),
    _rule(
        "nccl",
        _ROOT,
        r"invalid usage.*nccl|nccl.*invalid (?:usage|argument)|duplicate gpu detected",
    ),
    _rule("nccl", _WEAK, r"nccl warn .*(?:error|fail|timeout|invalid|mismatch)"),
)
