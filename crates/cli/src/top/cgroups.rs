//! Names of control groups, as people know them.
//!
//! **Invariant:** a process that has ended has none.

/// The path of the control group of a process: in the hierarchy of version 2, or the first that there is; empty if it has ended.
pub(super) fn cgroup_of(pid: i32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let path = |line: &str| line.splitn(3, ':').nth(2).map(str::to_owned);
    let unified = text.lines().find(|line| line.starts_with("0::")).and_then(path).filter(|path| path != "/");
    unified.or_else(|| text.lines().find_map(path)).unwrap_or_default()
}

/// What a control group is called: by the container and the pod that its path names, as runtimes do.
pub(super) fn container(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let last = last.strip_suffix(".scope").or_else(|| last.strip_suffix(".service")).unwrap_or(last);
    let (runtime, id) = last.rsplit_once('-').unwrap_or(("container", last));
    let is_id = id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = match path {
        "" => "(ended)".to_owned(),
        "/" => "/".to_owned(),
        _ if is_id => format!("{runtime} {}", &id[..12]),
        _ => last.to_owned(),
    };
    // `kubepods-burstable-pod<UID>.slice`, or `pod<UID>`; systemd writes underlines for dashes.
    let pod = path.split('/').find_map(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let uid = part.rsplit_once("-pod").map_or_else(|| part.strip_prefix("pod"), |(_, uid)| Some(uid))?;
        (uid.len() >= 32).then(|| uid.replace('_', "-"))
    });
    pod.map_or(name.clone(), |pod| format!("pod {pod} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_and_pods_have_names() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let pod = "kubepods-burstable-pod8dd1ee26_4bb5_4d1b_9b3c_6a4b40a1d0c5.slice";
        for (path, name) in [
            (format!("/system.slice/docker-{id}.scope"), "docker 0123456789ab"),
            (format!("/docker/{id}"), "container 0123456789ab"),
            (
                format!("/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-{id}.scope"),
                "pod 8dd1ee26-4bb5-4d1b-9b3c-6a4b40a1d0c5 cri-containerd 0123456789ab",
            ),
            ("/system.slice/ssh.service".to_owned(), "ssh"),
            ("/".to_owned(), "/"),
            (String::new(), "(ended)"),
        ] {
            assert_eq!(container(&path), name);
        }
    }
}
