//! `pmux timeline`: a recording as one page that needs nothing else: who ran where and when, what was counted, what is missing.
//!
//! What it is: [`data`] is what the page shows, as JSON; `assets` is the page: `data.js` unpacks, `lanes.js` and `flame.js` draw,
//! `main.js` is what mouse and keys do. Read first: [`data::of`].
//!
//! **Invariant:** the page asks no network for anything. Times in it are in ns from its beginning.

mod data;

use crate::failure::Failure;
use crate::input;
use crate::options::timeline::TimelineOptions;
use crate::picture;
use crate::picture::output::{self, Kind, Packing};
use pmux::profile::LookupDetail;
use std::io::{self, Write};

const PAGE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/page.css");
const SCRIPTS: [&str; 4] = [
    include_str!("assets/data.js"),
    include_str!("assets/lanes.js"),
    include_str!("assets/flame.js"),
    include_str!("assets/main.js"),
];

const KIND: Kind = Kind {
    name: "a page of pmux timeline",
    begins: "<!DOCTYPE html>",
    mark: Some("pmux timeline</title>"),
    packing: Packing::ByName,
    opens: "Open it in a web browser; it needs no network",
};

pub(crate) fn timeline(options: &TimelineOptions) -> Result<(), Failure> {
    let to = output::place(&options.output, "timeline.html", KIND)?;
    let look = if options.no_inline { LookupDetail::Functions } else { LookupDetail::Lines };
    let (drawn, waits) = picture::whole_with_waits(&input::spec(&options.input)?, &options.part.wanted(), look)?;
    let data = data::of(&drawn, &waits);
    output::write(&to, KIND, |out| write(&data, out))
}

fn write(data: &serde_json::Value, out: &mut dyn Write) -> io::Result<()> {
    // Nothing in the data may end the element that it stands in.
    let data = data.to_string().replace('<', "\\u003c");
    let name = data.split_once("\"file\":\"").and_then(|(_, rest)| rest.split_once('"'));
    let title = name.map_or("recording", |(name, _)| name).replace('&', "&amp;").replace('<', "&lt;");
    for part in PAGE.split_inclusive("-->") {
        match part.split_once("<!--") {
            Some((before, mark)) => {
                out.write_all(before.as_bytes())?;
                match mark.trim_end_matches("-->").trim() {
                    "title" => out.write_all(title.as_bytes())?,
                    "style" => write!(out, "<style>\n{STYLE}</style>")?,
                    "data" => write!(out, "<script type=\"application/json\" id=\"data\">{data}</script>")?,
                    "scripts" => write!(out, "<script>\n\"use strict\";\n{}</script>", SCRIPTS.join("\n"))?,
                    _ => {}
                }
            }
            None => out.write_all(part.as_bytes())?,
        }
    }
    Ok(())
}
