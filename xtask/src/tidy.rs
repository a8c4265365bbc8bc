//! `cargo xtask tidy`: the layers of the tree hold.
//!
//! Three rules. A crate depends only on crates of lower layers. Inside a crate, the top-level modules form no
//! cycle. A doc comment names the thing or the action: it does not begin with What, Whether, How or Who. Sources
//! are scanned as text: `crate::module` paths outside of tests are the edges.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::steps::root;

/// Crates from the lowest layer to the highest. A crate may depend on crates of lower rows, and of its own row
/// only if they stand before it.
const LAYERS: &[&[&str]] = &[
    &["orlop-testbed", "orlop-regex", "orlop-grpc"],
    &["orlop-cel", "orlop-api", "orlop-crd", "orlop-kinds", "orlop-quota", "orlop-trace"],
    &[
        "orlop-store",
        "orlop-net",
        "orlop-observe",
        "orlop-auth",
        "orlop-audit",
        "orlop-encryption",
        "orlop-admission",
        "orlop-aggregator",
        "orlop-flow-control",
    ],
    &[
        "orlop-check",
        "orlop-client",
        "orlop-controllers",
        "orlop-compose",
        "orlop-metrics",
        "orlop-node",
        "orlop-device-client",
    ],
    &["orlop-server", "orlop-etcd", "orlop-device"],
    &["orlop-typed", "orlop-test", "orlop-generate"],
    &["orlop-aws"],
    &["slate", "slate-client", "slate-server", "slate-cli", "slate-operator", "slate-bench"],
    &["orlop", "orlop-bench", "orlop-fuzz", "orlop-compare"],
];

/// Crates whose modules still form cycles, with the reason.
const KNOWN_CYCLES: &[(&str, &str)] =
    &[("orlop-cel", "values know the opaque types of the libraries, whose functions take values")];

pub(crate) fn run() -> Result<(), String> {
    let crates = root().join("crates");
    let mut faults = Vec::new();
    for folder in folders(&crates)? {
        let name = file_name(&folder);
        faults.extend(check_layers(&name, &read(&folder.join("Cargo.toml"))?));
        let graph = module_graph(&folder.join("src"))?;
        faults.extend(check_words(&folder)?);
        let known = KNOWN_CYCLES.iter().find(|(known, _)| *known == name);
        match (find_cycle(&graph), known) {
            (Some(cycle), None) => {
                faults.push(format!("{name}: modules form a cycle: {}", cycle.join(" -> ")));
            }
            (None, Some(_)) => faults.push(format!("{name}: no cycle any more: take it out of KNOWN_CYCLES")),
            _ => {}
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(format!("\n  {}", faults.join("\n  "))) }
}

// === Crates ===

/// Returns the place of a crate in [`LAYERS`], which grows upwards.
fn layer(name: &str) -> Option<usize> {
    LAYERS.concat().iter().position(|known| *known == name)
}

fn check_layers(name: &str, manifest: &str) -> Vec<String> {
    let Some(own) = layer(name) else {
        return vec![format!("{name}: give it a place in LAYERS of xtask/src/tidy.rs")];
    };
    let mut faults = Vec::new();
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let upwards = layer(dependency).is_some_and(|other| other >= own);
        if section == "[dependencies]" && upwards {
            faults.push(format!("{name} depends on {dependency}, which is not below it"));
        }
    }
    faults
}

// === Modules ===

type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the top-level modules of a crate and those that each of them imports.
fn module_graph(source: &Path) -> Result<Graph, String> {
    let mut graph = Graph::new();
    for path in entries(source)? {
        let module = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !matches!(module.as_str(), "lib" | "main" | "bin") {
            graph.entry(module).or_default();
        }
    }
    let reexports = match fs::read_to_string(source.join("lib.rs")) {
        Ok(library) => reexports(&library, &graph),
        Err(_) => BTreeMap::new(),
    };
    let modules: Vec<String> = graph.keys().cloned().collect();
    for module in modules {
        let mut imports = BTreeSet::new();
        for (file, depth) in sources_of(source, &module)? {
            let text = without_tests(&read(&file)?);
            for name in imported(&text, depth) {
                imports.insert(reexports.get(&name).cloned().unwrap_or(name));
            }
        }
        imports.retain(|name| *name != module && graph.contains_key(name));
        graph.insert(module, imports);
    }
    Ok(graph)
}

/// Returns the files of a module, each with the number of `super`s that lead to the crate's root.
fn sources_of(source: &Path, module: &str) -> Result<Vec<(PathBuf, usize)>, String> {
    let mut files = Vec::new();
    let file = source.join(format!("{module}.rs"));
    if file.is_file() {
        files.push((file, 1));
    }
    let mut wanted = vec![(source.join(module), 2)];
    while let Some((folder, depth)) = wanted.pop().filter(|(folder, _)| folder.is_dir()) {
        for path in entries(&folder)? {
            if path.is_dir() {
                wanted.push((path, depth + 1));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let is_root = file_name(&path) == "mod.rs";
                // Modules that only tests have.
                if !file_name(&path).ends_with("tests.rs") {
                    files.push((path, if is_root { depth - 1 } else { depth }));
                }
            }
        }
    }
    Ok(files)
}

/// Cuts a file off at its tests, which stand at its end, and leaves comments out.
fn without_tests(text: &str) -> String {
    let code = text.find("\n#[cfg(test)]\nmod ").map_or(text, |end| &text[..end]);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Returns the first segments of all paths that begin at the crate's root.
fn imported(text: &str, depth: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for prefix in ["crate::".to_owned(), "super::".repeat(depth)] {
        for (at, _) in text.match_indices(&prefix) {
            let before = text[..at].chars().next_back();
            if before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':') {
                names.extend(first_segments(&text[at + prefix.len()..]));
            }
        }
    }
    names
}

/// `a::b` is `a`; `{a::b, c::{d, e}}` is `a` and `c`.
fn first_segments(path: &str) -> Vec<String> {
    let identifier =
        |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![identifier(path)] };
    let (mut depth, mut start, mut segments) = (0_u32, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && !c.is_whitespace() => {
                segments.push(identifier(&group[at..]));
                start = false;
            }
            _ => {}
        }
    }
    segments
}

/// Returns items that the crate's root re-exports, with the modules that they come from.
fn reexports(library: &str, graph: &Graph) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in library.split(';') {
        let Some((_, path)) = statement.split_once("use ") else { continue };
        let module: String = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !graph.contains_key(&module) {
            continue;
        }
        let items = path.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_type = |item: &&str| item.starts_with(|c: char| c.is_uppercase());
        found.extend(items.filter(is_type).map(|item| (item.to_owned(), module.clone())));
    }
    found
}

/// Returns a cycle of the graph, if there is one, as the path that closes it.
fn find_cycle(graph: &Graph) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    graph.keys().find_map(|start| walk(graph, start, &mut Vec::new(), &mut done))
}

fn walk<'a>(
    graph: &'a Graph,
    at: &'a str,
    path: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<String>> {
    if let Some(first) = path.iter().position(|seen| *seen == at) {
        return Some(path[first..].iter().chain([&at]).map(ToString::to_string).collect());
    }
    if !done.contains(at) {
        path.push(at);
        for next in graph.get(at).into_iter().flatten() {
            if let Some(cycle) = walk(graph, next, path, done) {
                return Some(cycle);
            }
        }
        path.pop();
        done.insert(at);
    }
    None
}

// === Words ===

/// Returns doc comments of a folder that begin with a word of a riddle.
fn check_words(folder: &Path) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            faults.extend(check_words(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path)?;
            let riddles = text.lines().enumerate().filter(|(_, line)| is_riddle(line));
            faults
                .extend(riddles.map(|(at, line)| format!("{}:{}: {}", path.display(), at + 1, line.trim())));
        }
    }
    Ok(faults)
}

fn is_riddle(line: &str) -> bool {
    let line = line.trim_start();
    let comment = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
    comment
        .is_some_and(|text| ["What ", "Whether ", "How ", "Who "].iter().any(|word| text.starts_with(word)))
}

// === Files ===

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn folders(parent: &Path) -> Result<Vec<PathBuf>, String> {
    Ok(entries(parent)?.into_iter().filter(|path| path.join("Cargo.toml").is_file()).collect())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let owned = |to: &&[&str]| to.iter().map(ToString::to_string).collect();
        edges.iter().map(|(from, to)| ((*from).to_owned(), owned(to))).collect()
    }

    #[test]
    fn cycles_are_found_and_printed_as_a_path() {
        assert_eq!(find_cycle(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])), None);
        let cycle = find_cycle(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])]));
        assert_eq!(cycle, Some(vec!["b".to_owned(), "c".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn imports_are_read_from_single_paths_groups_and_supers() {
        let text =
            "use crate::{\n    one::{A, B},\n    two,\n};\nfn f() { crate::three::g(); other_crate::x(); }";
        assert_eq!(imported(text, 1).into_iter().collect::<Vec<_>>(), ["one", "three", "two"]);
        assert_eq!(imported("use super::super::four::D;", 2).into_iter().collect::<Vec<_>>(), ["four"]);
    }

    #[test]
    fn tests_and_comments_import_nothing() {
        let text = "// crate::one\nuse crate::two;\n#[cfg(test)]\nmod tests {\n    use crate::three;\n}\n";
        assert_eq!(imported(&without_tests(text), 1).into_iter().collect::<Vec<_>>(), ["two"]);
    }

    #[test]
    fn doc_comments_that_begin_with_a_riddle_are_found() {
        assert!(is_riddle("    /// Whether it holds."));
        assert!(!is_riddle("    /// Returns true if it holds."));
        assert!(!is_riddle("    // What a pity."));
    }

    #[test]
    fn the_tree_is_tidy() {
        run().unwrap();
    }

    #[test]
    fn a_dependency_upwards_is_a_fault() {
        assert_eq!(check_layers("orlop-api", "[dependencies]\norlop-server.workspace = true\n").len(), 1);
        assert_eq!(check_layers("orlop-server", "[dependencies]\norlop-api.workspace = true\n").len(), 0);
        assert_eq!(check_layers("orlop-api", "[dev-dependencies]\norlop-server.workspace = true\n").len(), 0);
        assert_eq!(check_layers("unknown", "").len(), 1);
    }
}
