"""Patterns of lines -> causes, the most telling first; the first that fits a line counts.

Facts about the texts of Linux, CUDA, NCCL, torch, Python, Slurm, Kubernetes and Ray, each as short
as tells it from others.
"""

from __future__ import annotations

import re

from relkit.why.rules.line_rule import LineRule
from relkit.why.rules.line_rule import line_rule as _rule
from relkit.why.rules.network_rules import NETWORK
from relkit.why.rules.other_words import BY_ERRNO, OTHER_SHELLS
from relkit.why.rules.told import Kind

_ROOT, _WEAK, _AFTER, _LAUNCHER = Kind.ROOT, Kind.WEAK, Kind.CONSEQUENCE, Kind.LAUNCHER

# Linux, and shells.
_SYSTEM = (
    # Ray lists what may have been: that is no proof of any of it.
    _rule("launcher", _LAUNCHER, r"worker died or was killed (?:while|by an unexpected)"),
    _rule("oom-killer", _ROOT, r"out of memory: kill(?:ed)? process (?P<pid>\d+)"),
    _rule("oom-killer", _ROOT, r"oom-kill:.*\bpid=(?P<pid>\d+)"),
    _rule("oom-killer", _ROOT, r"\boom[-_ ]?kill(?:ed|er)?\b(?!.*(?:disable|adj|score))"),
    _rule("oom-killer", _ROOT, r"^srun: error: .*\bout of memory$"),
    _rule("oom-killer", _ROOT, r"exceeded (?:step |job )?memory limit"),
    _rule("oom-killer", _ROOT, r"oomd\[\d+\]: killed .* due to memory"),
    _rule(
        "oom-killer",
        _ROOT,
        r"earlyoom.*\bsending sig(?:kill|term) to process (?P<pid>\d+)",
    ),
    _rule("oom-killer", _ROOT, r"\bterm_memlimit\b"),
    _rule("oom-killer", _ROOT, r"\bjob killed: v?mem\b.*exceeded limit"),
    _rule(
        "segfault",
        _WEAK,
        r"\bprocess (?P<pid>\d+) \(.*\) of user \d+ (?:terminated abnormally|dumped core)",
    ),
    _rule("oom-killer", _ROOT, r"killed due to the node running low on memory"),
    _rule(
        "hardware", _ROOT, r"\bNVRM: Xid \((?P<at>PCI:[0-9a-f:.]+)\)(?!.*:\s*(?:13|31|43|45)\b,)"
    ),
    _rule("hardware", _ROOT, r"\bNVRM: Xid\b(?!.*:\s*(?:13|31|43|45)\b,)"),
    _rule("device-error", _ROOT, r"\bNVRM: Xid\b.*:\s*(?:13|31)\b,"),
    _rule("device-error", _AFTER, r"\bNVRM: Xid\b.*:\s*(?:43|45)\b,"),
    _rule("hardware", _ROOT, r"gpu (?:has )?fallen off the bus"),
    _rule("hardware", _ROOT, r"\bgpu is lost\b"),
    _rule(
        "hardware",
        _ROOT,
        r"uncorrectable (?:volatile )?ecc|double[- ]bit ecc|uncorrectable nvlink|"
        r"\[hardware error\]|cuda error: hardware stack error|machine check exception",
    ),
    _rule("segfault", _ROOT, r"(?:\[(?P<pid>\d+)\])?: segfault at [0-9a-f]+ ip"),
    # UCX's, Open MPI's.
    _rule("segfault", _ROOT, r":(?P<pid>\d+) *:\d+:\d+\] caught signal \d+ \("),
    _rule(
        "segfault",
        _ROOT,
        r"\[[^\[\]: ]+:0*(?P<pid>\d+)\] "
        r"(?:\*\*\* process received signal|signal: (?:seg|bus|ill|float))",
    ),
    _rule("segfault", _ROOT, r"\w\[(?P<pid>\d+)\] (?:general protection|trap )"),
    _rule(
        "segfault",
        _ROOT,
        r"fatal python error: (?:segmentation|bus|illegal|floating)|"
        r"\bsegmentation fault\b|\bsigsegv\b|\bsigbus\b|\bsigill\b|\bsigfpe\b|"
        r"\billegal instruction\b|\bfloating point exception\b.*core dumped|"
        r"(?:^|: |\s)bus error(?:\s*\(core dumped\)|$)",
    ),
    _rule("disk-full", _ROOT, r"no space left on device|\benospc\b"),
    _rule("disk-full", _ROOT, r"(?:disk )?quota exceeded|\bedquot\b|over quota"),
    _rule(
        "storage",
        _ROOT,
        r"stale (?:nfs )?file handle|input/output error|read-only file system|"
        r"buffer i/o error|transport endpoint is (?:not connected|shutdown)",
    ),
    _rule(
        "too-many-files",
        _ROOT,
        r"too many open files|can't start new thread|"
        r"(?:fork|thread|process).*resource temporarily unavailable|memlock.*too low",
    ),
)

# Schedulers.
_SCHEDULERS = (
    _rule(
        "evicted",
        _ROOT,
        r"the node was low on|the node had condition:|"
        r"ephemeral[- ](?:local )?storage .*exceeds|"
        r"exceeded its local ephemeral|usage of emptydir volume .*exceeds",
    ),
    _rule(
        "time-limit",
        _ROOT,
        r"due to time limit|job reached (?:its )?time limit|walltime .*exceeded|"
        r"exceeded .*walltime|deadlineexceeded|term_runlimit|cancel\w+ .*time limit",
    ),
    _rule(
        "preempted",
        _ROOT,
        r"due to preemption|\bpreempted\b|preempting pod|spot (?:instance )?(?:interruption|"
        r"termination)|term_preempt",
    ),
    _rule(
        "node-lost",
        _ROOT,
        r"due to node fail|node fail(?:ure|ed)\b|\bnode_fail\b|nodelost|node is not ready|"
        r"node \S+ (?:is )?(?:down|unreachable|lost|not responding)|"
        r"lost (?:connection|contact) (?:to|with) (?:node|host)|the node .*(?:is|has) died|"
        r"^srun: error: .*\bnode failure|unexpectedly .*node.* terminated",
    ),
    _rule("preempted", _ROOT, r"\bevicted\b|taintmanagereviction"),
    _rule(
        "image",
        _ROOT,
        r"imagepullbackoff|errimagepull|failed to pull image|invalidimagename",
    ),
    _rule("unschedulable", _ROOT, r"failedscheduling|\bunschedulable\b|\d+ insufficient \S+"),
    _rule("cancelled", _WEAK, r"\bCANCELLED(?: AT| BY|\+| ON|\b)"),
)

# Devices.
_DEVICES = (
    _rule(
        "device-assert",
        _ROOT,
        r"device-side assert|\.cuh?:\d+:.*(?:block|thread): \[.*assertion\b|"
        r"\.(?:hip|cuh?):\d+.*\bassertion .*failed",
    ),
    _rule(
        "device-oom",
        _ROOT,
        r"(?:cuda|hip|xpu|npu|mps|musa|device|gpu|torch)\S*[ :._].*out of memory|"
        r"\boutofmemoryerror: (?!.*(?:killed|node))(?:cuda|hip|xpu|npu)|cuda_error_out_of_memory|"
        r"cublas_status_alloc_failed|tried to allocate [\d.]+ ?[kmgt]i?b.*(?:gpu|npu|device|total)|"
        r"resource_?exhausted(?:error)?:.*(?:memory|allocat)|"
        r"oom when allocating|cudnn_status_alloc_failed",
    ),
    _rule(
        "version",
        _ROOT,
        r"driver/library version mismatch|driver version is insufficient|"
        r"no kernel image is available|cuda capability sm_\d+ is not compatible|"
        r"driver (?:on your system )?is too old|unsupported ptx|system has unsupported|"
        r"undefined symbol|glibc(?:xx)?_[\d.]+'? not found|numpy\.(?:dtype|ndarray) size changed|"
        r"version (?:mismatch|conflict)|(?:requires|required).* but (?:you have|found|got)\b|"
        r"(?:compiled|built) (?:with|for|against) .*(?:but|while|differ|mismatch)|"
        r"symbol .* version .* not defined|unsupported gpu architecture|"
        r"mismatched? (?:nccl|cuda|torch) version|forward compatibility was attempted",
    ),
    _rule(
        "device-missing",
        _ROOT,
        r"no cuda gpus are available|no hip gpus|no (?:cuda-capable|nvidia|usable) "
        r"(?:device|driver|gpu)|found no nvidia driver|invalid device ordinal|"
        r"not compiled with cuda enabled|could not select device driver|"
        r"no cuda-capable device|nvml: driver not loaded|failed call to cuinit|"
        r"(?:devices?|gpus?) (?:is|are) busy or unavailable|no gpus? (?:found|available|detected)",
    ),
    _rule(
        "device-mismatch",
        _ROOT,
        r"(?:all|the) tensors? to be on the same device|same device, but found|"
        r"input type .*cuda.* and weight type|input type .* and weight type .*cuda|"
        r"must be on the same (?:device|gpu)|(?:is|are) on (?:the )?(?:cpu|cuda:\d).*"
        r"(?:but|expected).*(?:cpu|cuda|device)|expected .* on (?:cpu|cuda).*(?:got|found|but)|"
        r"device type of .* but .*device|module must have its parameters .* on device",
    ),
)

# More of devices: behind NCCL's, which quotes these.
_DEVICE_ERRORS = (
    _rule(
        "device-error",
        _ROOT,
        r"(?:cuda|hip|npu|acl|musa)(?: runtime)? (?:error|failure)|"
        r"\bacl (?:stream|event|device) \w+ failed|\baicore (?:execution|exception|error)|"
        r"amdgpu: \[\w+\] page fault|amdgpu_job_timedout|"
        r"cu(?:blas|dnn|fft|solver)_status|cu(?:blas|dnn|fft|solver) error|"
        r"illegal memory access|unspecified launch failure|"
        r"cuda(?:error)?_?(?:launch|illegal|unknown)\w*|misaligned address|"
        r"hsa_status_error|memory access fault by gpu|xla runtime.*(?:error|fail)|"
        r"device (?:kernel )?(?:error|lost)",
    ),
)

# What programs say of themselves.
_PROGRAMS = (
    _rule(
        "nan",
        _ROOT,
        r"\b(?:loss|grad(?:ient)?s?|grad[_ ]?norm|norm|perplexity|ppl|logits|activations?)\b"
        r"[^a-z\n]{0,24}(?:tensor\()?[-+]?\b(?:nan|inf)\b",
    ),
    _rule(
        "nan",
        _ROOT,
        r"\b(?:nan|inf(?:inity)?|nans?/infs?|nan or inf)s?\b.{0,40}\b(?:detected|encountered|"
        r"found|occurred|in (?:the )?(?:loss|grad|local grad|weight|output|model|forward|logits|"
        r"activation|input))|"
        r"(?:found|detected|encountered|got|is|are|became|returned|contains?) (?:a |tensor\()?"
        r"(?:nan|inf)s?\b(?: |$|[.,!)])(?!.*iterations)|"
        r"loss scale (?:is )?already at minimum|"
        r"non-?finite (?:loss|grad|value|norm)|(?:loss|grad\w*|norm) (?:is|was|are) (?:not|non-?)"
        r" ?finite|probability tensor contains",
    ),
    _rule(
        "shared-memory",
        _ROOT,
        r"insufficient shared memory|shared memory limit|/dev/shm.*(?:no space|full|too small)|"
        r"unable to (?:open|write to|mmap) (?:shared memory|file <?/?torch)",
    ),
    _rule(
        "data-worker",
        _WEAK,
        r"dataloader worker \(pid\(?s?\)?[^)]*(?P<pid>\d+)\)* (?:is killed|exited)|"
        r"dataloader worker.*(?:exited unexpectedly|is killed|died)",
    ),
    _rule(
        "missing-module",
        _ROOT,
        r"no module named|cannot import name|dll load failed|error in loading shared lib|"
        r"cannot open shared object file|packagenotfounderror|modulenotfounderror|"
        r"failed to import|could not import",
    ),
    _rule(
        "checkpoint",
        _ROOT,
        r"error\(s\) in loading state_dict|pytorchstreamreader|failed finding central directory|"
        r"pytorchstreamwriter|"
        r"(?:corrupt|truncat|incomplete)\w* .*(?:checkpoint|ckpt|safetensors)|"
        r"(?:checkpoint|ckpt|safetensors).*(?:corrupt|truncat|incomplete|missing keys|mismatch)|"
        r"safetensorerror|headertoo(?:large|small)|invalid load key|"
        r"(?:missing|unexpected) key\(s\) in state_dict|unpicklingerror|"
        r"enforce fail at inline_container",
    ),
    _rule(
        "download",
        _ROOT,
        r"(?:max retries exceeded with url|httpsconnectionpool|urlerror|sslerror|"
        r"certificate verify failed|gated ?repo|repositorynotfounderror|"
        r"not a valid model identifier|localentrynotfounderror|"
        r"couldn't connect to ['\"]?https?|temporary failure in name resolution|"
        r"(?:401|403|404|429|5\d\d) (?:client|server) error|http error \d{3}|"
        r"nocredentialserror|accessdenied|nosuchbucket|offline mode is enabled)",
    ),
    _rule(
        "data",
        _ROOT,
        r"unicodedecodeerror|jsondecodeerror|unidentifiedimageerror|cannot identify image|"
        r"image file is truncated|arrowinvalid|dataset\w*error|"
        r"(?:tokenizer|vocab\w*).*(?:not (?:found|exist|load)|fail|error|invalid|can't|unable)|"
        r"(?:can't|unable to|cannot|failed to) load (?:the )?tokenizer|"
        r"corrupt\w* (?:sample|record|data|file|jpeg|tar|shard)|"
        r"invalid (?:record|sample|shard)|parquet magic bytes|"
        r"expected sequence of (?:equal )?length|each element in list of batch",
    ),
    _rule(
        "shape",
        _ROOT,
        r"mat1 and mat2|shapes? .*(?:cannot be|not be|mismatch|not aligned|incompatible|invalid)|"
        r"(?:shape|size|dimension)s? (?:mismatch|of tensor)|must match the (?:size|existing)|"
        r"size mismatch|view size is not compatible|"
        r"expected (?:input|target|tensor|scalar|\d+d|hidden|object of|self|query|all)"
        r".*(?:size|shape|dim|channels|dtype|type|batch)|sizes of tensors must match|"
        r"not divisible by|must be divisible|"
        r"(?:dtype|type) mismatch|must have the same (?:dtype|shape|size|number)|same dtype|"
        r"could not broadcast|invalid for input of size|dimension out of range|"
        r"(?:stack|cat) expects? each tensor|"
        r"expected (?:m1 and m2|mat1 and mat2)",
    ),
    _rule(
        "compile",
        _ROOT,
        r"error building extension|ninja: build stopped|nvcc fatal|"
        r"(?:failed|error|unable) .*compil\w* .*(?:kernel|extension|cuda|c\+\+)|"
        r"fatal error: .*\.h: no such|triton\.compiler|compilationerror|"
        r"inductorerror|backendcompilerfailed|cuda_home environment variable is not set",
    ),
    _rule(
        "host-oom",
        _ROOT,
        r"cannot allocate memory|\bmemoryerror\b|bad_alloc|unable to allocate [\d.]+ \w?i?b\b|"
        r"defaultcpuallocator.*(?:can't|not enough|failed)|_arraymemoryerror|mmap.*enomem",
    ),
    _rule(
        "permission",
        _ROOT,
        r"permission denied|operation not permitted|\bpermissionerror\b|\beacces\b|\beperm\b|"
        r"access (?:is )?denied",
    ),
    _rule(
        "missing-file",
        _ROOT,
        r"no such file or directory|command not found|can't open (?:file|input)|"
        r"\bfilenotfounderror\b|file (?:\S+ )?(?:was )?not found|"
        r"(?:file|path|directory|folder|checkpoint|dataset)\b.{0,120}(?:does not|doesn't) exist|"
        r"\benoent\b|not a directory|executable (?:file )?not found|cannot stat\b",
    ),
    _rule(
        "division",
        _ROOT,
        r"\bzerodivisionerror\b|division by zero|integer modulo by zero",
    ),
    _rule(
        "config",
        _ROOT,
        r"unrecognized arguments?|the following arguments are required|invalid choice:|"
        r"error: argument|no such option|unknown (?:option|argument|config\w*|key)|"
        r"got an unexpected keyword argument|missing \d+ required (?:positional|keyword)|"
        r"(?:config\w*|yaml|hydra|omegaconf|argument\w*).*error|error.*\bconfig(?:uration)?\b|"
        r"missing (?:mandatory|required) (?:value|option|key|config)|validationerror|"
        r"missingmandatoryvalue|missing option|usageerror",
    ),
    _rule("assertion", _ROOT, r"\bassertionerror\b|assertion `?.*failed"),
    _rule(
        "interrupted",
        _WEAK,
        r"\bkeyboardinterrupt\b|\bsigint\b|interrupted by user|received signal: ?2\b",
    ),
)

# How processes ended, as launchers and shells say it.
_ENDS = (
    _rule(
        "cancelled",
        _WEAK,
        r"process \d+ got signal: 15|received sig(?:nal )?(?:15|term)|got sigterm|"
        r"caught sigterm|^terminated$|signalexception",
    ),
    _rule(
        "killed",
        _WEAK,
        r"^(?:\S+: line \d+: +)?(?P<pid>\d+)? *killed\b|exited on signal 9|^killed$|"
        r"died with <signals\.sigkill|return code = -9|exit code:? 137|exited with exit code 137|"
        r"killed by (?:sigkill|signal:? 9)\b",
    ),
    _rule(
        "abort",
        _WEAK,
        r"\baborted\b.*core dumped|fatal python error: aborted|\bsigabrt\b|"
        r"terminate called (?:after|without|recursively)|^(?:\S+: line \d+: +\d+ )?aborted$|"
        r"free\(\): |double free|malloc\(\): |corrupted size|stack smashing",
    ),
    _rule(
        "launcher",
        _LAUNCHER,
        r"childfailederror|failed \(exitcode|exits? with (?:return|exit) code|"
        r"returned non-zero exit|exited with (?:exit )?code(?! 0\b)|"
        r"exited? on signal|worker group .*(?:fail|unhealthy)|processexitedexception|"
        r"processraisedexception|raytaskerror|calledprocesserror|exit(?:ed with)? status [1-9]|"
        r"task \d+: exited",
    ),
)

LINE_RULES: tuple[LineRule, ...] = (
    *_SYSTEM,
    *_SCHEDULERS,
    *_DEVICES,
    *NETWORK,
    *_DEVICE_ERRORS,
    *_PROGRAMS,
    *_ENDS,
    *BY_ERRNO,
    *OTHER_SHELLS,
)


# By the line without digits: logs say the same again and again, with other numbers.
_MAX_KNOWN = 8192
_NUMBERS = str.maketrans("", "", "0123456789abcdefABCDEF")
_known: dict[str, LineRule | None] = {}
_BY_NUMBER = re.compile(r"\b(?:(?:exit|return)?_?code|status|signal|xid)\b", re.IGNORECASE)


def is_by_number(text: str) -> bool:
    """Whether a line may say something else with another number: an exit code of 0 is none."""
    return _BY_NUMBER.search(text) is not None


def rule_of(text: str) -> tuple[LineRule, re.Match[str]] | None:
    """The first rule that fits a line, and where.

    Args:
        text: without the prefixes of launchers.
    """
    if is_by_number(text):
        return _search(text)
    shape = text.translate(_NUMBERS)
    if shape in _known:
        rule = _known[shape]
        match = None if rule is None else rule.pattern.search(text)
        if rule is None or match is not None:
            return None if rule is None or match is None else (rule, match)
    made = _search(text)
    if len(_known) >= _MAX_KNOWN:
        _known.clear()
    _known[shape] = None if made is None else made[0]
    return made


def _search(text: str) -> tuple[LineRule, re.Match[str]] | None:
    lower = text.lower()
    for rule in LINE_RULES:
        for word in rule.words:
            if word in lower:
                match = rule.pattern.search(text)
                if match is not None:
                    return rule, match
                break
    return None
