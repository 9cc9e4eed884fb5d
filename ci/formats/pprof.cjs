// Reads a profile with pprof-format and prints, as JSON, its types and what each function has of the last one.
//     node pprof.cjs FOLDER PROFILE
"use strict";
const fs = require("node:fs"), path = require("node:path"), zlib = require("node:zlib");
const [folder, file] = process.argv.slice(2);
const { Profile } = require(path.join(folder, "node_modules/pprof-format"));
const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(file)));
const text = (at) => profile.stringTable.strings[Number(at)];
const byId = (list) => new Map(list.map((one) => [Number(one.id), one]));
const locations = byId(profile.location), functions = byId(profile.function), mappings = byId(profile.mapping);
const leaves = {};
for (const sample of profile.sample) {
  for (const id of sample.locationId) {
    const location = locations.get(Number(id));
    if (!mappings.has(Number(location.mappingId))) throw new Error(`location ${id} has no mapping`);
    for (const line of location.line) if (!functions.has(Number(line.functionId))) throw new Error(`no function in location ${id}`);
  }
  if (!sample.locationId.length) continue;
  const line = locations.get(Number(sample.locationId[0])).line[0];
  const name = text(functions.get(Number(line.functionId)).name);
  leaves[name] = (leaves[name] ?? 0) + Number(sample.value.at(-1));
}
console.log(JSON.stringify({ types: profile.sampleType.map((type) => text(type.type)), leaves }));
