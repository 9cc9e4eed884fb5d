//! The syntax: trees, faults with their columns, and that no text panics.

use proptest::prelude::*;

use super::parser::number;
use super::*;

fn one(text: &str) -> EventNode {
    match parse(text).unwrap().as_slice() {
        [Item::Event(node)] => node.clone(),
        other => panic!("{text}: {other:?}"),
    }
}

fn fault(text: &str) -> (usize, String) {
    let fault = parse(text).unwrap_err();
    (fault.at, fault.problem)
}

#[test]
fn names_tracepoints_and_modifiers() {
    assert_eq!(one("page-faults:u").what, EventForm::Name("page-faults".into()));
    assert_eq!(one("page-faults:u").modifiers, Modifiers::parse("u").unwrap());
    assert_eq!(
        one("sched:sched_switch").what,
        EventForm::Tracepoint { system: "sched".into(), name: "sched_switch".into() }
    );
    assert_eq!(one("sched:*:k").modifiers, Modifiers::parse("k").unwrap());
    assert_eq!(one("tsc:u").what, EventForm::Name("tsc".into()), "letters that are modifiers are no tracepoint");
    assert_eq!(
        one("9p:9p_client_req").what,
        EventForm::Tracepoint { system: "9p".into(), name: "9p_client_req".into() }
    );
    assert_eq!(one("r1a8:k").what, EventForm::Name("r1a8".into()));
}

#[test]
fn numbers() {
    assert_eq!(one("3").what, EventForm::Number(3));
    assert_eq!(one("-5:u").what, EventForm::Number(-5));
    assert_eq!(one("1:2:u").what, EventForm::Typed { kind: 1, config: 2 });
    assert_eq!(one("0x4:0x1a8").what, EventForm::Typed { kind: 4, config: 0x1a8 });
    for (text, number_of) in [
        ("10", Some(10)),
        ("0x10", Some(16)),
        ("0X1f", Some(31)),
        ("0x", None),
        ("+1", None),
        ("0x+1", None),
        ("-1", None),
        ("", None),
        ("18446744073709551616", None),
    ] {
        assert_eq!(number(text), number_of, "{text}");
    }
}

#[test]
fn breakpoints() {
    let memory =
        |len, access: Option<&str>| EventForm::Memory { address: 0x1000, len, access: access.and_then(Access::parse) };
    assert_eq!(one("mem:0x1000").what, memory(None, None));
    assert_eq!(one("mem:4096/8:rw:u").what, memory(Some(8), Some("rw")));
    assert_eq!(one("mem:0x1000:x").what, memory(None, Some("x")));
    let letters_only = one("mem:0x1000:u");
    assert_eq!((letters_only.what, letters_only.modifiers), (memory(None, None), Modifiers::parse("u").unwrap()));
}

#[test]
fn probes() {
    for (text, at) in [("uprobe:'/a b,c:{d}':'f'", ProbeAt::Entry), ("uretprobe:/bin/sh:f:u", ProbeAt::Return)] {
        let path = if at == ProbeAt::Entry { "/a b,c:{d}" } else { "/bin/sh" };
        assert_eq!(one(text).what, EventForm::Probe { path: path.into(), place: "f".into(), at }, "{text}");
    }
}

#[test]
fn terms() {
    let node = one("cpu/event=0x3c,umask=1,edge,name='a b',x=y/kp");
    let terms = node.terms.unwrap();
    assert_eq!(terms.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["event", "umask", "edge", "name", "x"]);
    assert_eq!(terms[0].value, Some(SyntaxValue::Number(0x3c)));
    assert_eq!(terms[2].value, None);
    assert_eq!(terms[3].value, Some(SyntaxValue::Text("a b".into())));
    assert_eq!(node.modifiers, Modifiers::parse("kp").unwrap());
    assert_eq!(one("msr//").terms.map(|terms| terms.len()), Some(0));
    assert_eq!(one("cpu/name='a,b/{:}'/").terms.unwrap()[0].value, Some(SyntaxValue::Text("a,b/{:}".into())));
    assert_eq!(one("msr/tsc/:u").modifiers, Modifiers::parse("u").unwrap());
}

#[test]
fn groups_and_space() {
    let items = parse(" a , g{b:u,c/d/}:DW , {e}\n").unwrap();
    let [Item::Event(_), Item::Group(first), Item::Group(second)] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!(
        (first.name.as_deref(), first.events.len(), first.modifiers),
        (Some("g"), 2, Modifiers::parse("DW").unwrap())
    );
    assert_eq!((second.name.as_deref(), second.events.len()), (None, 1));
}

#[test]
fn faults_have_columns() {
    for (text, column) in [
        ("", 0),
        ("a,,b", 2),
        ("a,", 2),
        ("a b", 2),
        ("a}", 1),
        ("{a", 0),
        ("{a,", 0),
        ("{}", 1),
        ("{a,{b}}", 3),
        ("page-faults:", 12),
        ("page-faults:uz", 13),
        ("page-faults:uu", 13),
        ("page-faults:pppp", 15),
        ("r12:u:k", 5),
        ("mem:foo", 4),
        ("mem:0x10:q", 9),
        ("mem:0x10/x", 9),
        ("cpu/event=/", 10),
        ("cpu/event", 9),
        ("cpu/,/", 4),
        ("cpu/name='x/", 9),
        ("a;b", 1),
        ("a, é", 3),
        ("0:99999999999999999999", 2),
        ("99999999999:1", 0),
    ] {
        assert_eq!(fault(text).0, column, "{text}");
    }
    assert_eq!(fault("{a,{b}}").1, "a group cannot hold another group");
    assert_eq!(fault("{a").1, "this group is never closed: expected '}'");
    assert_eq!(fault("a;").1, "no event has the character ';'");
    assert_eq!(fault("a b").1, "expected ',' or the end, found 'b'");
    assert_eq!(fault("cpu/event").1, "expected ',' or '/', but the text ends here");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in any::<String>()) {
        if let Err(fault) = parse(&text) {
            let error = fault.into_error(&text);
            prop_assert!(error.column() <= text.chars().count());
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
