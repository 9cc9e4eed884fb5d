//! Names and addresses of real programs: what the tables say is held against what the programs say themselves.

mod programs;

use crate::common::{needs, skip_unless};
use pmux::event::Access;
use pmux::symbol::{
    AddressSpec, FindError, Finding, FoundAddress, FoundKind, ProcessImage, ResolvedAddress, SearchScope, Symbolizer,
};
use pmux::{Cause, Command, Error, ExitedChild, Followed, Session, Step};
use programs::{SAY, Workshop, in_repository};
use std::sync::Arc;

fn wanted(text: &str) -> AddressSpec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// A followed command, where it may be.
fn follow(words: &[String]) -> Option<Followed> {
    match Command::hold(words).unwrap().follow() {
        Ok(followed) => Some(followed),
        Err(Error::Follow(_)) => {
            needs("trace", "the right to trace its own children", false);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Looks for something at each stop of a command until it is found or can't be; then lets the command run to its end.
struct Search {
    result: Result<Finding, FindError>,
    /// At which stops it was looked for.
    causes: Vec<Cause>,
    place: Option<Arc<ResolvedAddress>>,
    exited: ExitedChild,
}

fn search_with(
    mut symbolizer: Symbolizer,
    target: &str,
    words: &[String],
    mut at_find: impl FnMut(),
) -> Option<Search> {
    let target = wanted(target);
    let mut followed = follow(words)?;
    let mut result = None;
    let mut causes = Vec::new();
    let mut place = None;
    while let Step::Mapped(stop) = followed.next_step() {
        causes.push(stop.cause());
        assert!(stop.moving().is_empty(), "{stop:?}");
        let image = ProcessImage::read(stop.pid()).unwrap();
        let found = symbolizer.find(&target, SearchScope::Process(&image));
        let done = !matches!(found, Ok(Finding::NotYet(_)));
        if let Ok(Finding::Found(found)) = &found {
            at_find();
            place = Some(symbolizer.place(stop.pid(), found[0].address));
        }
        result = Some(found);
        if done {
            break;
        }
    }
    let exited = followed.finish().wait(&Session::new().unwrap()).unwrap();
    Some(Search { result: result.unwrap(), causes, place, exited })
}

fn found(result: &Result<Finding, FindError>) -> &[FoundAddress] {
    let Ok(Finding::Found(found)) = result else { panic!("{result:?}") };
    found
}

fn search(target: &str, words: &[String]) -> Option<Search> {
    search_with(Symbolizer::new(), target, words, || {})
}

impl Search {
    fn one(&self) -> &FoundAddress {
        let [one] = self.all() else { panic!("{:?}", self.result) };
        one
    }

    fn all(&self) -> &[FoundAddress] {
        found(&self.result)
    }

    fn error(&self) -> String {
        match &self.result {
            Err(error) | Ok(Finding::NotYet(error)) => error.to_string(),
            Ok(Finding::Found(found)) => panic!("found {found:?}"),
        }
    }
}

const VARIABLES: &str = r#"
long counter = 1;
char table[40];
static __thread int own = 3;
static int twice = 1;
int other_twice(void);
const void *where_other(void);
struct pair { long a, b; } pair;
__attribute__((noinline)) int work(int n) { static int calls; calls += n; say("calls", &calls); return calls; }
int main(int argc, char **argv)
{
    begin(argc, argv);
    say("counter", &counter); say("table", table); say("pair", &pair); say("twice", &twice);
    say("other_twice", where_other()); say("work", (void *)work); say("main", (void *)main);
    own += work(argc);
    return twice + other_twice() + own == 0;
}
"#;

const OTHER: &str =
    "static int twice = 2; int other_twice(void) { return twice; } const void *where_other(void) { return &twice; }";

fn variables(flags: &[&str]) -> Option<(Workshop, String)> {
    let shop = Workshop::with(&["cc"])?;
    shop.write("main.c", &format!("{SAY}{VARIABLES}"));
    shop.write("other.c", OTHER);
    let mut words = vec!["cc", "-g", "-O1", "-fno-omit-frame-pointer", "-o", "prog", "main.c", "other.c"];
    words.extend(flags);
    if !shop.try_run(&words) {
        needs("cc", &format!("cc {}", flags.join(" ")), false);
        return None;
    }
    let program = shop.text("prog");
    Some((shop, program))
}

#[test]
fn variables_and_functions_are_where_the_program_says() {
    for flags in [&["-pie", "-fPIE"][..], &["-no-pie"], &["-static"], &["-static-pie", "-fPIE"], &["-gz"]] {
        let Some((shop, program)) = variables(flags) else { continue };
        for (target, name, behind, len, access) in [
            ("counter", "counter", 0, 8, Access::WRITE),
            ("counter:rw", "counter", 0, 8, Access::READ_WRITE),
            ("prog:counter/4", "counter", 0, 4, Access::WRITE),
            ("table", "table", 0, 40, Access::WRITE),
            ("table+8", "table", 8, 8, Access::WRITE),
            ("table+0x24", "table", 0x24, 4, Access::WRITE),
            ("pair+8", "pair", 8, 8, Access::WRITE),
            ("calls", "calls", 0, 4, Access::WRITE),
            ("main.c:twice", "twice", 0, 4, Access::WRITE),
            ("other.c:twice", "other_twice", 0, 4, Access::WRITE),
            ("work", "work", 0, Access::EXECUTE.default_len(), Access::EXECUTE),
            ("main:x", "main", 0, Access::EXECUTE.default_len(), Access::EXECUTE),
            ("main:w", "main", 0, 4, Access::WRITE),
        ] {
            // How a program is linked makes a difference to where it is, not to what is in it.
            if !flags.contains(&"-pie") && !matches!(target, "counter" | "calls" | "work") {
                continue;
            }
            let file = format!("said-{}", target.replace([':', '/'], "-"));
            let Some(search) = search(target, &[program.clone(), shop.text(&file)]) else { return };
            assert!(search.exited.status.success(), "{target} {flags:?}");
            assert_eq!(search.causes, [Cause::Exec], "{target}: the program itself is there from the beginning");
            let found = search.one();
            assert_eq!(found.address, shop.said(&file)[name] + behind, "{target} {flags:?}");
            assert_eq!((found.len, found.access), (len, access), "{target} {flags:?}");
            assert_eq!(found.module.as_deref(), Some(program.as_str()));
            let code = matches!(name, "work" | "main");
            assert_eq!(found.kind == FoundKind::Code, code, "{target}");
            let place = search.place.clone().unwrap();
            if code {
                assert_eq!(place.function(), Some(name));
                assert!(place.source().is_some_and(|(file, line)| file.ends_with("main.c") && line > 1), "{place:?}");
            }
        }
    }
}

#[test]
fn what_has_no_single_address_is_explained() {
    let Some((shop, program)) = variables(&[]) else { return };
    let file = shop.text("said");
    let words = [program, file];
    for (target, text) in [
        ("own", "each thread has its own 'own'"),
        (
            "twice",
            "'twice' means several things; write one of\n  main.c:twice   twice in main.c\n  other.c:twice  twice in other.c",
        ),
        ("contuer", "no symbol 'contuer' in prog and its libraries\n  did you mean counter?"),
        ("prog:contuer", "no symbol 'contuer' in prog\n  did you mean counter?"),
        (
            "qqqqqqqq",
            "no symbol 'qqqqqqqq' in prog and its libraries\n  if a program that it starts has it, say which: PROGRAM:qqqqqqqq",
        ),
        ("counter+8", "'counter' has 8 bytes: byte 8 is beyond its end"),
        ("main/4", "'main' is a function, which has no length to watch"),
        ("prog:0x99999999", "prog has no address 0x99999999"),
        ("libnothing.so:f", "no program or library 'libnothing.so' in prog; it has"),
        (
            "counter:rwq",
            "'q' is no access: counter:r, :w, :rw and :x are understood\n  if it is a symbol of a library: no program",
        ),
        ("other.cc:1", "no source file 'other.cc' was compiled into prog\n  did you mean other.c?"),
        ("other.c:99", "line 99 of other.c has no code, and none behind it has: the last is 1"),
        ("kernel:no_such_function_at_all", "no_such_function_at_all"),
    ] {
        let Some(search) = search(target, &words) else { return };
        assert!(
            search.error().starts_with(text) || target.starts_with("kernel") && search.error().contains(text),
            "{target}: {}",
            search.error()
        );
    }
    let Some(longer) = search("counter/16", &words) else { return };
    assert_eq!(longer.one().notes, ["counter has 8 bytes: 8 behind it are watched too"]);
    let Some(later) = search("0x700000000000", &words) else { return };
    assert_eq!(later.one().kind, FoundKind::Unknown);
    assert_eq!(later.one().notes, ["nothing is mapped at 0x700000000000 of prog yet"]);
}

#[test]
fn stripped_programs_say_so_and_separate_files_are_found() {
    let Some((shop, program)) = variables(&["-Wl,--build-id"]) else { return };
    skip_unless!(needs("cc", "objcopy and strip", Workshop::with(&["objcopy", "strip"]).is_some()));
    shop.run(&["objcopy", "--only-keep-debug", "prog", "prog.debug"]);
    shop.run(&["cp", "prog.debug", "kept"]);
    shop.run(&["strip", "prog"]);
    shop.run(&["rm", "prog.debug"]);
    let words = [program.clone(), shop.text("said")];
    let Some(found) = search("calls", &words) else { return };
    assert!(found.error().contains("prog was stripped of its symbols"), "{}", found.error());
    let Some(found) = search("main.c:5", &words) else { return };
    assert!(found.error().starts_with("prog has no line numbers: build it with -g"), "{}", found.error());

    // By build id.
    let notes = std::process::Command::new("file").arg("-b").arg(&program).output();
    let text = notes.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    if let Some(id) = text.split("BuildID[sha1]=").nth(1).and_then(|rest| rest.split([',', ' ', '\n']).next()) {
        shop.write(&format!("debug/.build-id/{}/x", &id[..2]), "");
        shop.run(&["cp", "kept", &format!("debug/.build-id/{}/{}.debug", &id[..2], &id[2..])]);
        let symbolizer = Symbolizer::with_debug_folder(shop.path("debug"));
        let Some(found) = search_with(symbolizer, "calls", &words, || {}) else { return };
        assert_eq!(found.one().address, shop.said("said")["calls"]);
    }
    // By its name, beside the program.
    shop.run(&["cp", "kept", "prog.debug"]);
    shop.run(&["objcopy", "--add-gnu-debuglink=prog.debug", "prog"]);
    shop.run(&["rm", "-f", "said"]);
    let Some(found) = search("calls", &words) else { return };
    assert_eq!(found.one().address, shop.said("said")["calls"]);
    let Some(found) = search("main.c:5", &words) else { return };
    assert!(found.all().iter().all(|found| found.kind == FoundKind::Code));
    // Not one that belongs to another build.
    shop.write("other.c", &OTHER.replace("2", "7"));
    shop.run(&["cc", "-g", "-Wl,--build-id", "-o", "prog.debug", "main.c", "other.c"]);
    let Some(found) = search("calls", &words) else { return };
    assert!(found.error().contains("stripped"), "{}", found.error());
}

#[test]
fn a_stripped_program_that_kept_the_names_of_its_functions_packed_has_them() {
    let Some((shop, program)) = variables(&[]) else { return };
    skip_unless!(needs("xz", "objcopy, strip and xz", Workshop::with(&["objcopy", "strip", "xz"]).is_some()));
    shop.write("names", "work\n");
    shop.run(&["objcopy", "--only-keep-debug", "prog", "prog.debug"]);
    shop.run(&["objcopy", "-S", "--keep-symbols=names", "prog.debug", "functions"]);
    shop.run(&["xz", "functions"]);
    shop.run(&["strip", "prog"]);
    shop.run(&["objcopy", "--add-section", ".gnu_debugdata=functions.xz", "prog"]);
    shop.run(&["rm", "prog.debug"]);
    let words = [program.clone(), shop.text("said")];
    let Some(found) = search("work", &words) else { return };
    assert_eq!((found.one().address, found.one().kind), (shop.said("said")["work"], FoundKind::Code));
    let Some(found) = search("calls", &words) else { return };
    assert!(found.error().contains("prog was stripped of its symbols, but for functions"), "{}", found.error());
    let Some(found) = search("wrok", &words) else { return };
    assert!(found.error().contains("did you mean work?"), "{}", found.error());
}

const LIBRARY: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int lib_counter = 5;
static int hidden;
static void say_at(const char *name, const void *where)
{
    FILE *out = fopen(getenv("SAID"), "a");
    fprintf(out, "%s %p\n", name, where);
    fclose(out);
}
void lib_work(void) { lib_counter++; hidden++; }
__attribute__((constructor)) static void first(void)
{
    say_at("hidden", &hidden); say_at("lib_work", (void *)lib_work); lib_work();
}
"#;

#[test]
fn libraries_are_found_before_their_first_instruction() {
    let Some(shop) = Workshop::with(&["cc"]) else { return };
    shop.write("lib.c", LIBRARY);
    shop.run(&["cc", "-g", "-shared", "-fPIC", "-Wl,-soname,libmylib.so.1", "-o", "libmylib.so.1.2", "lib.c"]);
    shop.run(&["ln", "-s", "libmylib.so.1.2", "libmylib.so.1"]);
    let main = "extern int lib_counter; void lib_work(void);\nint main(int c, char **v) { begin(c, v); lib_work(); say(\"lib_counter\", &lib_counter); return 0; }";
    shop.write("main.c", &format!("{SAY}{main}"));
    for flags in [&["-pie", "-fPIE"][..], &["-no-pie", "-fno-pic"]] {
        let mut words = vec!["cc", "-g", "-Wl,-rpath,.", "-o", "prog", "main.c", "./libmylib.so.1"];
        words.extend(flags);
        shop.run(&words);
        for (target, name) in [
            ("libmylib.so:hidden", "hidden"),
            ("libmylib:lib_work", "lib_work"),
            ("prog:hidden:w", "hidden"),
            ("libmylib.so.1.2:lib_counter", "lib_counter"),
            ("lib.c:hidden", "hidden"),
        ] {
            shop.run(&["rm", "-f", "said"]);
            let said = shop.path("said");
            let line = format!("cd {}; SAID=said exec ./prog said", shop.text(""));
            let words = ["sh", "-c", &line].map(String::from);
            if target == "prog:hidden:w" {
                // The program doesn't have it, and it was said which is meant.
                let Some(search) = search(target, &words) else { return };
                assert!(search.error().starts_with("no symbol 'hidden' in prog"), "{}", search.error());
                continue;
            }
            let Some(search) = search_with(Symbolizer::new(), target, &words, || assert!(!said.exists(), "{target}"))
            else {
                return;
            };
            assert!(search.exited.status.success());
            assert_eq!(search.causes.last(), Some(&Cause::Library), "{target}");
            let found = search.one();
            assert_eq!(found.address, shop.said("said")[name], "{target} {flags:?} {:?}", found.notes);
        }
    }
}

#[test]
fn plugins_and_other_programs_are_waited_for() {
    let Some(shop) = Workshop::with(&["cc"]) else { return };
    shop.write("plugin.c", LIBRARY);
    shop.run(&["cc", "-g", "-shared", "-fPIC", "-o", "plugin.so", "plugin.c"]);
    let main = "#include <dlfcn.h>\nint main(int c, char **v) { begin(c, v); say(\"main\", (void *)main); void *l = dlopen(\"./plugin.so\", RTLD_NOW); if (!l) return 2; say(\"lib_counter\", dlsym(l, \"lib_counter\")); return 0; }";
    shop.write("main.c", &format!("{SAY}{main}"));
    shop.run(&["cc", "-g", "-o", "prog", "main.c", "-ldl"]);
    let line = format!("cd {}; SAID=said; export SAID; /bin/true; ./prog said; exit 4", shop.text(""));
    let words = ["sh", "-c", &line].map(String::from);
    for (target, name) in [("plugin.so:lib_counter", "lib_counter"), ("plugin:hidden", "hidden"), ("prog:main", "main")]
    {
        shop.run(&["rm", "-f", "said"]);
        let plugin = name != "main";
        let said = || shop.said("said");
        let check = || assert_eq!(said().contains_key("main"), plugin, "{target} was there at the wrong time");
        let Some(search) = search_with(Symbolizer::new(), target, &words, check) else { return };
        assert_eq!(search.exited.status.code(), Some(4));
        assert_eq!(search.one().address, shop.said("said")[name], "{target}");
    }
    // What belongs to no program that is named is unknown at once, in the shell's own programs.
    let Some(search) = search("lib_counter", &words) else { return };
    assert!(search.error().contains("PROGRAM:lib_counter"), "{}", search.error());
}

#[test]
fn lines_are_found_in_every_copy() {
    let Some(shop) = Workshop::with(&["cc"]) else { return };
    let main = "int sum;\nstatic inline __attribute__((always_inline)) void add(int n)\n{\n    sum += n; /* line 4 */\n}\n\nvoid first(int n)\n{\n    add(n);\n    for (int i = 0; i < n; i++) /* 10 */\n        sum *= 3;\n}\n\nint main(int argc, char **argv)\n{\n    add(argc);\n    first(argc);\n    add(2);\n    return sum == 0 && argv == 0;\n}\n";
    shop.write("src/main.c", main);
    shop.write("lib/main.c", "int helper(int n) { return n; }\n");
    for flags in [&["-O0"][..], &["-O2"], &["-O1", "-gdwarf-4"], &["-O1", "-gz=zstd"]] {
        let mut words = vec!["cc", "-g", "-fno-inline-functions-called-once", "-o", "prog", "src/main.c", "lib/main.c"];
        words.extend(flags);
        if !shop.try_run(&words) {
            continue;
        }
        let words = [shop.text("prog")];
        let Some(four) = search("src/main.c:4", &words) else { return };
        // Inlined into main twice, into first once, and perhaps first into main.
        assert!((3..=4).contains(&four.all().len()), "{flags:?} {:?}", four.all());
        assert!(
            four.all()[0].notes.iter().any(|note| note.starts_with("main.c:4 is in ")),
            "{:?}",
            four.all()[0].notes
        );
        assert_eq!(four.all()[0].name, "main.c:4");
        let place = four.place.clone().unwrap();
        assert_eq!(place.function(), Some("add"), "{place:?}");
        assert!(place.frames.len() >= 2 && place.is_in("add"), "{place:?}");
        assert_eq!(place.source().unwrap().1, 4);
        let Some(inlined) = search("add", &words) else { return };
        let text = inlined.error();
        let (_, line) = text.split_once("it was inlined wherever it is called; write its line: ").unwrap();
        let Some(there) = search(line, &words) else { return };
        assert!(line.contains("main.c:") && there.place.clone().unwrap().is_in("add"), "{text}");
        let Some(next) = search("src/main.c:13", &words) else { return };
        assert!(next.all()[0].notes[0].starts_with("line 13 has no code: line 1"), "{:?}", next.all());
        let Some(both) = search("main.c:1", &words) else { return };
        let text = both.error();
        assert!(text.starts_with("'main.c' is several files; write more of the path:"), "{text}");
        assert!(text.contains("src/main.c") && text.contains("lib/main.c"), "{text}");
        let Some(one) = search("lib/main.c:1", &words) else { return };
        assert_eq!(one.one().name, "main.c:1");
    }
}

#[test]
fn lines_are_there_where_the_rest_is_in_other_files() {
    let Some(shop) = Workshop::with(&["cc"]) else { return };
    shop.write("main.c", "int counter;\nint main(void)\n{\n    return counter;\n}\n");
    if !shop.try_run(&["cc", "-g", "-gsplit-dwarf", "-o", "prog", "main.c"]) {
        needs("cc", "cc -gsplit-dwarf", false);
        return;
    }
    for gone in [false, true] {
        if gone {
            shop.run(&["sh", "-c", "rm -f *.dwo"]);
        }
        let Some(found) = search("main.c:4", &[shop.text("prog")]) else { return };
        assert_eq!(found.one().name, "main.c:4");
        assert_eq!(found.place.clone().unwrap().to_string(), "main at main.c:4");
    }
}

#[test]
fn the_examples_have_what_their_heads_name() {
    for (tool, file, flags) in [
        ("cc", "writer.c", &["-g", "-pthread"][..]),
        ("c++", "writer.cc", &["-g", "-pthread"]),
        ("rustc", "writer.rs", &["-g"]),
    ] {
        let Some(shop) = Workshop::with(&[tool]) else { continue };
        let source = in_repository(&format!("examples/watch/{file}"));
        let text = std::fs::read_to_string(&source).unwrap();
        let command = text.lines().find_map(|line| line.split("pmux watch ").nth(1)).unwrap();
        let target = command.split(' ').next().unwrap();
        let source = source.to_str().unwrap();
        let mut words = vec![tool, "-o", "writer", source];
        words.extend(flags);
        shop.run(&words);
        let program = [shop.text("writer")];
        let Some(found) = search(target, &program) else { return };
        assert!(found.exited.status.success());
        assert_eq!((found.one().len, found.one().access), (8, Access::WRITE), "{file}");
        for function in ["forget", "pay_in"] {
            let Some(found) = search(function, &program) else { return };
            let place = found.place.clone().unwrap();
            assert!(place.is_in(function) && place.source().unwrap().0.ends_with(file), "{place}");
        }
        // The culprit's line.
        let line = text.lines().position(|line| line.contains("copy = 0") || line.contains("copy.store")).unwrap() + 1;
        let Some(found) = search(&format!("{file}:{line}"), &program) else { return };
        assert!(found.all()[0].notes.iter().all(|note| !note.contains("has no code")), "{:?}", found.all());
    }
}

#[test]
fn places_of_this_process_its_kernel_and_those_that_have_ended() {
    let me = std::process::id().cast_signed();
    let mut symbolizer = Symbolizer::new();
    let here = places_of_this_process_its_kernel_and_those_that_have_ended as fn() as usize as u64;
    let place = symbolizer.place(me, here);
    assert_eq!(
        place.function(),
        Some("it::symbols::places_of_this_process_its_kernel_and_those_that_have_ended"),
        "{place:?}"
    );
    assert!(place.source().is_some_and(|(file, _)| file.ends_with("tests/it/symbols.rs")), "{place:?}");
    assert!(Arc::ptr_eq(&place, &symbolizer.place(me, here)), "kept");
    let behind = symbolizer.place_of_return(me, here + 5);
    assert_eq!((behind.address, behind.function()), (here + 5, place.function()));
    assert_eq!(symbolizer.place(me, 0x10), Arc::new(ResolvedAddress::unknown(0x10)));
    let stack = 0;
    let on_stack = symbolizer.place(me, (&raw const stack) as usize as u64);
    assert_eq!((on_stack.function(), on_stack.module.as_deref()), (None, None), "{on_stack}");

    // A process that runs: what is mapped now is enough for the way back.
    let image = ProcessImage::read(me).unwrap();
    let name = "it::symbols::places_of_this_process_its_kernel_and_those_that_have_ended";
    for target in [name, name.rsplit_once(':').unwrap().1] {
        let result = symbolizer.find(&wanted(target), SearchScope::Process(&image));
        assert_eq!(found(&result).iter().map(|found| found.address).collect::<Vec<_>>(), [here], "{target}");
    }
    let counter = Box::new(7_u64);
    let address = (&raw const *counter) as usize as u64;
    let result = symbolizer.find(&wanted(&format!("{address:#x}/8")), SearchScope::Process(&image));
    let data = &found(&result)[0];
    assert_eq!((data.kind, data.access, data.len), (FoundKind::Data, Access::WRITE, 8));

    // What the kernel maps into every process.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    if let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) {
        let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let end = u64::from_str_radix(line.split(['-', ' ']).nth(1).unwrap(), 16).unwrap();
        let named = (start..end).step_by(16).map(|address| symbolizer.place(me, address));
        let named: Vec<_> = named.filter_map(|place| place.function().map(str::to_owned)).collect();
        assert!(named.iter().any(|name| name.contains("clock_gettime")), "{named:?}");
    }

    // The kernel, whatever the process.
    match symbolizer.find(&wanted("kernel:vfs_read"), SearchScope::Kernel) {
        Ok(Finding::Found(found)) => {
            let place = symbolizer.place(0, found[0].address + 2);
            assert_eq!(place.to_string(), "vfs_read+0x2 ([kernel])");
            assert_eq!(found[0].access, Access::EXECUTE);
        }
        Err(error @ FindError::KernelHidden { .. }) => {
            assert!(error.to_string().contains("hides its address"));
            needs("kallsyms", "the right to see kernel addresses", false);
        }
        other => {
            needs("kallsyms", &format!("kernel symbols ({other:?})"), false);
        }
    }
    let error = symbolizer.find(&wanted("lib.so:f"), SearchScope::Kernel).unwrap_err();
    assert!(error.to_string().contains("name a command, or a process with -p"), "{error}");

    // A process that has ended.
    let words = ["sleep", "1000"].map(String::from);
    let Some(mut followed) = follow(&words) else { return };
    let Step::Mapped(stop) = followed.next_step() else { panic!("no stop") };
    let image = ProcessImage::read(stop.pid()).unwrap();
    assert!(image.has_module("sleep") && !image.has_module("libc.so"));
    let mut running = followed.kill();
    symbolizer.remember(stop.pid()).ok();
    running.wait(&Session::new().unwrap()).unwrap();
    assert_eq!(symbolizer.place(stop.pid(), 0x1000).function(), None);
}

#[test]
fn what_a_process_maps_later_is_noticed() {
    let me = std::process::id().cast_signed();
    let mut image = ProcessImage::read(me).unwrap();
    assert!(!image.refresh().unwrap(), "nothing with code came");
    assert_eq!(image.pid(), me);
    assert!(matches!(ProcessImage::read(i32::MAX), Err(Error::Process(_))));
}

#[test]
fn places_outlive_their_process() {
    let Some((shop, program)) = variables(&[]) else { return };
    let Some(mut followed) = follow(&[program, shop.text("said")]) else { return };
    let Step::Mapped(stop) = followed.next_step() else { panic!("no stop") };
    let mut symbolizer = Symbolizer::new();
    symbolizer.remember(stop.pid()).unwrap();
    followed.finish().wait(&Session::new().unwrap()).unwrap();
    shop.run(&["rm", "prog"]);
    let work = shop.said("said")["work"];
    assert_eq!(symbolizer.place(stop.pid(), work).function(), Some("work"));
    symbolizer.forget(stop.pid());
    assert_eq!(symbolizer.place(stop.pid(), work).function(), None, "its number may be another's now");
}
