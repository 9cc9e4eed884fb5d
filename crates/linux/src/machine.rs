//! What machine this is: names, processor, memory, how CPUs belong together, and the kernel's own build id.
//!
//! What it is: what a recording says of where it was made. Read first: [`Machine`].
//!
//! **Invariant:** what can't be read is left out; nothing here fails.

use crate::build_id::of_notes;
use std::fs;
use std::path::{Path, PathBuf};

/// Where this machine tells about itself.
#[derive(Clone, Debug)]
pub struct Machine {
    proc: PathBuf,
    sys: PathBuf,
}

/// How one CPU belongs to others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuPlace {
    /// The core, as numbered in its package.
    pub core: u32,
    /// The package.
    pub package: u32,
    /// The CPUs of the same package, as a list of the kernel (`0-3,6`).
    pub package_cpus: String,
    /// The die, as numbered in its package.
    pub die: u32,
    /// The CPUs of the same die.
    pub die_cpus: String,
    /// The CPUs of the same core.
    pub core_cpus: String,
}

/// Where the code of the kernel lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelText {
    /// Its first symbol.
    pub name: String,
    /// Where that is.
    pub start: u64,
    /// The address behind the last one.
    pub end: u64,
}

/// A module of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedModule {
    /// Its name.
    pub name: String,
    /// Where it lies.
    pub start: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn this() -> Self {
        Self::at(Path::new("/proc"), Path::new("/sys"))
    }

    /// A machine whose `/proc` and `/sys` are elsewhere.
    #[must_use]
    pub fn at(proc: &Path, sys: &Path) -> Self {
        Self { proc: proc.to_owned(), sys: sys.to_owned() }
    }

    fn proc_line(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.proc.join(name)).ok()?.trim_end().to_owned())
    }

    /// The name of the host.
    #[must_use]
    pub fn host_name(&self) -> Option<String> {
        self.proc_line("sys/kernel/hostname")
    }

    /// The release of the kernel, as `uname -r` tells it.
    #[must_use]
    pub fn kernel_release(&self) -> Option<String> {
        self.proc_line("sys/kernel/osrelease")
    }

    /// The kernel's word for this kind of processor, as `uname -m` tells it.
    #[must_use]
    pub fn architecture(&self) -> &'static str {
        std::env::consts::ARCH
    }

    /// The memory, in KiB.
    #[must_use]
    pub fn memory_kib(&self) -> Option<u64> {
        let text = self.proc_line("meminfo")?;
        text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?.trim().parse().ok()
    }

    /// What the processor is called.
    #[must_use]
    pub fn processor(&self) -> Option<String> {
        let text = self.proc_line("cpuinfo")?;
        value_of(&text, "model name").or_else(|| value_of(&text, "Processor"))
    }

    /// The processor's identity, as `perf` writes it: `VENDOR,FAMILY,MODEL,STEPPING` on x86, on arm64 the register `MIDR_EL1`.
    #[must_use]
    pub fn processor_id(&self) -> Option<String> {
        if let Ok(midr) = fs::read_to_string(self.sys.join("devices/system/cpu/cpu0/regs/identification/midr_el1")) {
            return Some(midr.trim().to_owned());
        }
        let text = self.proc_line("cpuinfo")?;
        let parts = ["vendor_id", "cpu family", "model", "stepping"].map(|key| value_of(&text, key));
        parts.into_iter().collect::<Option<Vec<_>>>().map(|parts| parts.join(","))
    }

    /// How a CPU belongs to others; `None` where it is offline.
    #[must_use]
    pub fn place(&self, cpu: u32) -> Option<CpuPlace> {
        let folder = self.sys.join(format!("devices/system/cpu/cpu{cpu}/topology"));
        let line = |name: &str| Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned());
        let number = |name: &str| line(name)?.parse().ok();
        let package_cpus = line("package_cpus_list").or_else(|| line("core_siblings_list"))?;
        Some(CpuPlace {
            core: number("core_id")?,
            package: number("physical_package_id")?,
            // Where dies are not told (before 5.2), a package is one.
            die: number("die_id").unwrap_or(0),
            die_cpus: line("die_cpus_list").unwrap_or_else(|| package_cpus.clone()),
            package_cpus,
            core_cpus: line("core_cpus_list").or_else(|| line("thread_siblings_list"))?,
        })
    }

    /// The most samples a second that the kernel takes of an event.
    #[must_use]
    pub fn most_samples_per_second(&self) -> Option<u64> {
        self.proc_line("sys/kernel/perf_event_max_sample_rate")?.parse().ok()
    }

    /// How precise the core's PMU says that it can be: 0 to 3.
    #[must_use]
    pub fn most_precise(&self) -> u8 {
        let text = fs::read_to_string(self.sys.join("bus/event_source/devices/cpu/caps/max_precise"));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Where the kernel's code lies; `None` where we may not know.
    #[must_use]
    pub fn kernel_text(&self) -> Option<KernelText> {
        use std::io::BufRead;
        let mut lines = std::io::BufReader::with_capacity(1 << 16, fs::File::open(self.proc.join("kallsyms")).ok()?);
        let (mut first, mut line): (Option<(String, u64)>, _) = (None, String::new());
        while lines.read_line(&mut line).ok()? > 0 {
            let mut words = line.split_ascii_whitespace();
            let (address, name) = (words.next()?, words.nth(1)?);
            if let "_text" | "_stext" | "_etext" = name {
                let address = u64::from_str_radix(address, 16).ok().filter(|&address| address != 0)?;
                match (&first, name) {
                    (None, "_text" | "_stext") => first = Some((name.to_owned(), address)),
                    (Some((name, start)), "_etext") if address > *start => {
                        return Some(KernelText { name: name.clone(), start: *start, end: address });
                    }
                    _ => {}
                }
            }
            line.clear();
        }
        None
    }

    /// The modules that are loaded, and may be known.
    #[must_use]
    pub fn modules(&self) -> Vec<LoadedModule> {
        let text = fs::read_to_string(self.proc.join("modules")).unwrap_or_default();
        let module = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let (name, bytes) = (words.next()?, words.next()?.parse().ok()?);
            let start = u64::from_str_radix(words.nth(3)?.strip_prefix("0x")?, 16).ok().filter(|&start| start != 0)?;
            Some(LoadedModule { name: name.to_owned(), start, bytes })
        };
        text.lines().filter_map(module).collect()
    }

    /// The build id of the kernel.
    #[must_use]
    pub fn kernel_build_id(&self) -> Option<Vec<u8>> {
        of_notes(&fs::read(self.sys.join("kernel/notes")).ok()?)
    }

    /// The build id of a module.
    #[must_use]
    pub fn module_build_id(&self, name: &str) -> Option<Vec<u8>> {
        let name = name.replace('-', "_");
        of_notes(&fs::read(self.sys.join("module").join(name).join("notes/.note.gnu.build-id")).ok()?)
    }
}

fn value_of(text: &str, key: &str) -> Option<String> {
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    };
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up() -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &[u8]| pmux_testkit::put(root.path(), path, text);
        put("proc/sys/kernel/osrelease", b"6.9.1\n");
        put("proc/meminfo", b"MemTotal:       24576 kB\nMemFree: 1 kB\n");
        put(
            "proc/cpuinfo",
            b"processor\t: 0\nvendor_id\t: V\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: X 9\nstepping\t: 1\n",
        );
        put("proc/kallsyms", b"0000000000000010 A fixed\nffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff82000000 T _etext\n");
        put("proc/modules", b"loop 40960 0 - Live 0xffffffffc0000000\nveiled 1 0 - Live 0x0000000000000000\nbroken\n");
        put("sys/kernel/notes", b"\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0\xaa\xbb\xcc\0");
        put("sys/devices/system/cpu/cpu1/topology/core_id", b"1\n");
        put("sys/devices/system/cpu/cpu1/topology/physical_package_id", b"0\n");
        put("sys/devices/system/cpu/cpu1/topology/core_siblings_list", b"0-1\n");
        put("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", b"1\n");
        let machine = Machine::at(&root.path().join("proc"), &root.path().join("sys"));
        (root, machine)
    }

    #[test]
    fn what_the_files_say() {
        let (_root, machine) = made_up();
        assert_eq!(machine.kernel_release().as_deref(), Some("6.9.1"));
        assert_eq!(machine.host_name(), None);
        assert_eq!(machine.memory_kib(), Some(24576));
        assert_eq!(machine.processor().as_deref(), Some("X 9"));
        assert_eq!(machine.processor_id().as_deref(), Some("V,26,2,1"));
        assert_eq!(machine.kernel_build_id().unwrap(), [0xaa, 0xbb, 0xcc]);
        let text = machine.kernel_text().unwrap();
        assert_eq!((text.name.as_str(), text.start, text.end), ("_text", 0xffff_ffff_8100_0000, 0xffff_ffff_8200_0000));
        let loaded = LoadedModule { name: "loop".to_owned(), start: 0xffff_ffff_c000_0000, bytes: 40960 };
        assert_eq!(machine.modules(), [loaded]);
        assert_eq!(machine.place(0), None);
        assert_eq!(machine.place(1).unwrap().package_cpus, "0-1");
    }
}
