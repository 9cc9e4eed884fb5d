# Adds pmux to the seccomp profile of a container, in the form of the OCI runtime specification or of Docker:
#
#   jq -f pmux.jq profile.json > profile-with-pmux.json
#
# perf_event_open waits for the answer of `pmux run --container`, which a runtime reaches at the socket that is named here. So does what is
# done to descriptors from 4096 to 8191, which virtual events have. Everything else stays as the profile has it.
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

(.defaultAction != "SCMP_ACT_ALLOW") as $denies
| .listenerPath = "/run/pmux/seccomp.sock"
| .listenerMetadata = "virtual"
| .syscalls = [(.syscalls // [])[] | .names -= first + fifth + ["perf_event_open"] | select(.names != [])]
    + [{ names: ["perf_event_open"], action: "SCMP_ACT_NOTIFY" }, split(first; 0; $denies), split(fifth; 4; $denies)]
