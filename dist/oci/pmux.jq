# Adds pmux to the seccomp profile of a container, in the form of the OCI runtime specification or of Docker:
#
#   jq -f pmux.jq profile.json > profile-with-pmux.json
#
# perf_event_open waits for the answer of `pmux run --container`, which a runtime reaches at the socket that is named here. So does what is
# done to descriptors from 4096 to 8191, which virtual events have. Everything else stays as the profile has it. One that has conditions on
# the calls about descriptors can't be changed so: jq then fails with a sentence.
def first: ["read", "readv", "pread64", "ioctl", "dup", "dup2", "dup3", "fcntl"];
def fifth: ["mmap"];
def rule($names; $at; $action; $op; $value; $two):
  { names: $names, action: $action, args: [{ index: $at, op: $op, value: $value, valueTwo: $two }] };
# The calls of a profile that denies what it does not name are allowed for all other descriptors.
def split($names; $at; $denies):
  rule($names; $at; "SCMP_ACT_NOTIFY"; "SCMP_CMP_MASKED_EQ"; 4294963200; 4096),
  if $denies then
    rule($names; $at; "SCMP_ACT_ALLOW"; "SCMP_CMP_LT"; 4096; 0),
    rule($names; $at; "SCMP_ACT_ALLOW"; "SCMP_CMP_GE"; 8192; 0)
  else empty end;

# Whether a rule allows its calls whatever their arguments are, and to every container.
def unconditional:
  .action == "SCMP_ACT_ALLOW" and (.args // []) == [] and (.includes // {}) == {} and (.excludes // {}) == {};
def named: if .names then .names elif .name then [.name] else [] end;

(.defaultAction != "SCMP_ACT_ALLOW") as $denies
| [(.syscalls // [])[] | select(unconditional) | named[]] as $allowed
| [(.syscalls // [])[] | select(unconditional | not) | named[]] as $conditional
| if .listenerPath or any((.syscalls // [])[]; .action == "SCMP_ACT_NOTIFY") then
    error("the profile has a seccomp agent already, and there is one for a container") else . end
| (first + fifth - (first + fifth - $conditional)) as $bad
| if $bad != [] then error("the profile has conditions on \($bad | join(", ")): pmux can't be added to it") else . end
# What it does not allow stays so.
| (if $denies then first + fifth - $allowed else [] end) as $denied
| .listenerPath = "/run/pmux/seccomp.sock"
| .listenerMetadata = "virtual"
| .syscalls = [(.syscalls // [])[] | .names = named - first - fifth - ["perf_event_open"] | del(.name) | select(.names != [])]
    + [{ names: ["perf_event_open"], action: "SCMP_ACT_NOTIFY" },
       split(first - $denied; 0; $denies), split(fifth - $denied; 4; $denies) | select(.names != [])]
