//! The modules of a crate: a graph of imports, its cycles, and the order of layers that `lib.rs` declares.
//!
//! Sources are scanned as text: `crate::module` and `super::module` paths outside of tests are the edges. An item that a
//! folder re-exports counts for the module that it comes from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::{entries, file_name, read};

/// Line of a `lib.rs` before its list of layers.
const LAYERS_FOLLOW: &str = "//! Modules form layers; each imports only those above it in this list:";

type Graph = BTreeMap<String, BTreeSet<String>>;

/// A folder of modules with a cycle, as a path of modules within the crate (empty for the crate itself), and the cycle.
pub(super) type Cycle = (String, String);

/// Returns a cycle of each folder of a crate that has one, the crate itself first.
pub(super) fn cycles(source: &Path) -> Result<Vec<Cycle>, String> {
    let mut cycles = Vec::new();
    let mut pending = vec![(source.to_path_buf(), String::new())];
    while let Some((folder, path)) = pending.pop() {
        if let Some(cycle) = find_cycle(&graph(&folder, &path)?) {
            cycles.push((path.trim_end_matches(':').to_owned(), cycle.join(" -> ")));
        }
        let children = entries(&folder)?.into_iter().filter(|child| child.is_dir());
        pending.extend(children.map(|child| {
            let path = format!("{path}{}::", file_name(&child));
            (child, path)
        }));
    }
    Ok(cycles)
}

/// Returns imports against the order of layers in the documentation of `lib.rs`, if it declares one.
pub(super) fn upward_imports(source: &Path) -> Result<Vec<String>, String> {
    let Ok(library) = fs::read_to_string(source.join("lib.rs")) else { return Ok(Vec::new()) };
    let layers = declared_layers(&library);
    if layers.is_empty() {
        return Ok(Vec::new());
    }
    let mut faults = Vec::new();
    for (module, imports) in graph(source, "")? {
        let Some(own) = layers.iter().position(|layer| *layer == module) else {
            faults.push(format!("{module} is missing in the list of layers of lib.rs"));
            continue;
        };
        let upwards = imports.iter().filter(|import| layers[own..].contains(import));
        faults.extend(upwards.map(|import| format!("{module} imports {import}, which is not above it")));
    }
    Ok(faults)
}

/// Returns the modules of the list in the documentation of a `lib.rs`, in order.
fn declared_layers(library: &str) -> Vec<String> {
    let lines = library.lines().skip_while(|line| *line != LAYERS_FOLLOW);
    let block = lines.skip_while(|line| !line.ends_with("```text")).skip(1);
    let rows = block.take_while(|line| !line.ends_with("```"));
    rows.flat_map(|row| {
        let names = row.trim_start_matches("//! ").split("  ").next().unwrap_or_default();
        names.split(", ").map(str::to_owned).collect::<Vec<_>>()
    })
    .collect()
}

/// Returns the modules of a folder at a path of modules such as `endpoints::`, and those of them that each imports.
fn graph(folder: &Path, path: &str) -> Result<Graph, String> {
    let mut graph = Graph::new();
    for entry in entries(folder)? {
        let module = entry.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !matches!(module.as_str(), "lib" | "main" | "mod" | "bin") && !module.ends_with("tests") {
            graph.entry(module).or_default();
        }
    }
    let root = ["lib.rs", "mod.rs"].map(|name| folder.join(name)).into_iter().find(|root| root.is_file());
    let root = root.or_else(|| Some(folder.with_extension("rs")).filter(|root| root.is_file()));
    let reexports = match root {
        Some(root) => reexports(&read(&root)?, &graph),
        None => BTreeMap::new(),
    };
    let modules: Vec<String> = graph.keys().cloned().collect();
    for module in modules {
        let mut imports = BTreeSet::new();
        for (file, depth) in sources_of(folder, &module)? {
            let text = without_tests(&read(&file)?);
            for name in imported(&text, path, depth) {
                imports.insert(reexports.get(&name).cloned().unwrap_or(name));
            }
        }
        imports.retain(|name| *name != module && graph.contains_key(name));
        graph.insert(module, imports);
    }
    Ok(graph)
}

/// Returns the files of a module, each with the number of `super`s that lead to the folder that holds the module.
fn sources_of(folder: &Path, module: &str) -> Result<Vec<(PathBuf, usize)>, String> {
    let mut files = Vec::new();
    let file = folder.join(format!("{module}.rs"));
    if file.is_file() {
        files.push((file, 1));
    }
    let mut pending = vec![(folder.join(module), 2)];
    while let Some((folder, depth)) = pending.pop().filter(|(folder, _)| folder.is_dir()) {
        for path in entries(&folder)? {
            if path.is_dir() {
                pending.push((path, depth + 1));
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

/// Cuts a file off at its module of tests, which stands at its end, and leaves comments out.
fn without_tests(text: &str) -> String {
    let is_inline = |start: usize| {
        let declaration = text[start..].find(['{', ';']).map(|end| text.as_bytes()[start + end]);
        declaration == Some(b'{')
    };
    let end =
        text.match_indices("\n#[cfg(test)]\nmod ").map(|(start, _)| start).find(|start| is_inline(*start));
    let lines = text[..end.unwrap_or(text.len())].lines();
    lines.filter(|line| !line.trim_start().starts_with("//")).flat_map(|line| [line, "\n"]).collect()
}

/// Returns the first segments of all paths into a folder at a path of modules.
fn imported(text: &str, path: &str, depth: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for prefix in [format!("crate::{path}"), "super::".repeat(depth)] {
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

/// Returns items that the root of a folder re-exports, with the modules that they come from.
fn reexports(root: &str, graph: &Graph) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for statement in root.split(';') {
        let Some((_, path)) = statement.split_once("use ") else { continue };
        let path = path.strip_prefix("self::").unwrap_or(path);
        let module: String = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !graph.contains_key(&module) {
            continue;
        }
        let items = path[module.len()..].split(|c: char| !c.is_alphanumeric() && c != '_');
        let items = items.filter(|item| !item.is_empty() && !graph.contains_key(*item));
        found.extend(items.map(|item| (item.to_owned(), module.clone())));
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
        assert_eq!(imported(text, "", 1).into_iter().collect::<Vec<_>>(), ["one", "three", "two"]);
        assert_eq!(imported("use super::super::four::D;", "", 2).into_iter().collect::<Vec<_>>(), ["four"]);
        let text = "use crate::{one::A, verbs::two};\nuse crate::verbs::{patch::B, get};";
        assert_eq!(imported(text, "verbs::", 1).into_iter().collect::<Vec<_>>(), ["get", "patch"]);
    }

    #[test]
    fn tests_and_comments_import_nothing() {
        let text = "// crate::one\n#[cfg(test)]\nmod fixture;\nuse crate::two;\n#[cfg(test)]\nmod tests {\n    use crate::three;\n}\n";
        assert_eq!(imported(&without_tests(text), "", 1).into_iter().collect::<Vec<_>>(), ["two"]);
    }

    #[test]
    fn reexported_items_count_for_their_module() {
        let graph = graph(&[("metrics", &[]), ("policy", &[])]);
        let found =
            reexports("mod metrics;\npub use self::metrics::{Metrics, count};\nuse std::fmt;", &graph);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["Metrics", "count"]);
        assert_eq!(found["Metrics"], "metrics");
    }

    #[test]
    fn layers_are_read_from_the_documentation() {
        let library = format!(
            "{LAYERS_FOLLOW}\n//!\n//! ```text\n//! one, two      the first\n//! three  last\n//! ```\n"
        );
        assert_eq!(declared_layers(&library), ["one", "two", "three"]);
    }
}
