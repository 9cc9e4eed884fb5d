//! Descriptions as kernels have them, and as no kernel would.

use super::*;
use proptest::prelude::*;

const COMMON: &str = "\
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

";

fn described(fields: &str, print: &str) -> Format {
    let text = format!("name: x\nID: 7\n{COMMON}{fields}\nprint fmt: {print}\n");
    let (id, format) = parser::format("sys", &text).unwrap();
    assert_eq!(id, 7);
    format
}

fn shown(format: &Format, raw: &[u8]) -> String {
    let mut out = String::new();
    format.print(raw, &mut |address| Some(("vfs_open".to_owned(), address & 0xff)), &mut out);
    out
}

#[test]
fn a_switch_is_printed_as_the_kernel_does() {
    let format = described(
        "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;
\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;",
        r#""prev_comm=%s prev_pid=%d prev_state=%s%s", REC->prev_comm, REC->prev_pid, (REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002) + 1) << 1) - 1), "|", { 0x00000001, "S" }, { 0x00000002, "D" }) : "R", REC->prev_state & (((0x3) + 1) << 1) ? "+" : """#,
    );
    let raw = |pid: i32, state: u64| {
        let mut raw = vec![0; 40];
        raw[8..11].copy_from_slice(b"sh\0");
        raw[24..28].copy_from_slice(&pid.to_ne_bytes());
        raw[32..40].copy_from_slice(&state.to_ne_bytes());
        raw
    };
    assert_eq!(shown(&format, &raw(-1, 3)), "prev_comm=sh prev_pid=-1 prev_state=S|D");
    assert_eq!(shown(&format, &raw(7, 8)), "prev_comm=sh prev_pid=7 prev_state=R+");
    // Bytes that end too early: what is there.
    assert_eq!(shown(&format, &raw(7, 0)[..30]), "prev_comm=sh prev_pid=7 prev_state=?");
}

#[test]
fn arrays_text_elsewhere_symbols_and_widths() {
    let format = described(
        "\tfield:unsigned long args[2];\toffset:8;\tsize:16;\tsigned:0;
\tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;
\tfield:void * at;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned int vec;\toffset:40;\tsize:4;\tsigned:0;",
        r#""(%lx, %lx) %s %pS %s cpu=%03d 0x%08lx %-4d| %5u%% %s" " end", REC->args[0], REC->args[1], __get_str(name), (void *)REC->at, __print_symbolic(REC->vec, { 0, "HI" }, { SOME_NAME, "what" }, { 1, "TIMER" }), REC->vec, ((unsigned long)(REC->vec)), (int)-REC->vec, REC->vec, __print_symbolic(REC->vec + 8, { 0, "HI" })"#,
    );
    let mut raw = vec![0; 48];
    raw[8..16].copy_from_slice(&0xfeed_u64.to_ne_bytes());
    raw[16..24].copy_from_slice(&u64::MAX.to_ne_bytes());
    raw[24..28].copy_from_slice(&(48_u32 | 5 << 16).to_ne_bytes());
    raw[32..40].copy_from_slice(&0x1234_u64.to_ne_bytes());
    raw[40] = 1;
    raw.extend(b"text\0");
    assert_eq!(
        shown(&format, &raw),
        "(feed, ffffffffffffffff) text vfs_open+0x34 TIMER cpu=001 0x00000001 -1  |     1% 0x9 end"
    );
    assert_eq!(format.own_fields().count(), 4);
    assert_eq!(format.field("args").unwrap().value(&raw), Some(FieldValue::Numbers(vec![0xfeed, u64::MAX])));
}

#[test]
fn what_is_not_understood_is_printed_field_by_field() {
    let format = described("\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;", r#""a=%d", some_function(REC->a)"#);
    assert_eq!(shown(&format, &[0xff; 12]), "a=-1");
    let deep = described(
        "\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;",
        &format!(r#""%d", {}1{}"#, "(".repeat(5000), ")".repeat(5000)),
    );
    assert_eq!(shown(&deep, &[0; 12]), "a=0");
}

#[test]
fn this_kernels_descriptions_are_understood() {
    let Ok(systems) = std::fs::read_dir("/sys/kernel/tracing/events") else {
        println!("skipped: needs tracefs");
        return;
    };
    let (mut all, mut printed) = (0, 0);
    for system in systems.flatten() {
        let name = system.file_name().to_string_lossy().into_owned();
        for event in std::fs::read_dir(system.path()).into_iter().flatten().flatten() {
            let Ok(text) = std::fs::read_to_string(event.path().join("format")) else { continue };
            let (_, format) = parser::format(&name, &text).unwrap();
            all += 1;
            printed += usize::from(format.printing.is_some());
            assert!(!format.fields.is_empty());
            let _ = shown(&format, &[0; 200]);
            if matches!(&*name, "sched" | "raw_syscalls" | "irq" | "signal" | "syscalls") {
                assert!(format.printing.is_some(), "{}:{}: {text}", format.system, format.name);
            }
        }
    }
    println!("{printed} of {all} descriptions are understood");
}

proptest! {
    #[test]
    fn anything_may_stand_there(print in "[-REC>a\"%dsx(){}\\[\\],0-9+*&|?:~! ]{0,60}", raw in prop::collection::vec(any::<u8>(), 0..40)) {
        let text = format!(
            "name: x\nID: 1\n{COMMON}\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:__data_loc char[] s;\toffset:12;\tsize:4;\tsigned:0;\nprint fmt: {print}"
        );
        if let Some((_, format)) = parser::format("s", &text) {
            let _ = shown(&format, &raw);
        }
        let _ = Formats::parse(&raw);
    }
}
