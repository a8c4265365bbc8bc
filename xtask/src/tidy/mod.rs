//! `cargo xtask tidy`: the layers of the tree hold.
//!
//! A crate depends only on crates of lower layers. The modules of a crate, and those of each of its folders, form no
//! cycle; where `lib.rs` lists layers, they hold. A doc comment names the thing or the action: it does not begin with
//! What, Whether, How or Who.

mod modules;

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::steps::root;

/// Crates from the lowest layer to the highest. A crate may depend on crates of lower rows, and of its own row
/// only if they stand before it.
const LAYERS: &[&[&str]] = &[
    &["orlop-testbed", "orlop-duration", "orlop-regex", "orlop-grpc"],
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

/// Folders whose modules form cycles, by crate and path of modules, because their data is recursive: a protobuf message
/// may hold an envelope with another, and CEL's values have the operations of libraries that make values.
const KNOWN_CYCLES: &[(&str, &str)] =
    &[("orlop-api", "protobuf"), ("orlop-cel", ""), ("orlop-cel", "value"), ("orlop-cel", "library")];

pub(crate) fn run() -> Result<(), String> {
    let mut faults = Vec::new();
    for folder in folders(&root().join("crates"))? {
        let name = file_name(&folder);
        faults.extend(check_layers(&name, &read(&folder.join("Cargo.toml"))?));
        faults.extend(check_modules(&name, &folder.join("src"))?);
        faults.extend(check_words(&folder)?);
    }
    if faults.is_empty() { Ok(()) } else { Err(format!("\n  {}", faults.join("\n  "))) }
}

fn check_modules(name: &str, source: &Path) -> Result<Vec<String>, String> {
    let upward = modules::upward_imports(source)?;
    let mut faults: Vec<String> = upward.iter().map(|fault| format!("{name}: {fault}")).collect();
    let cycles = modules::cycles(source)?;
    for (path, cycle) in &cycles {
        if !KNOWN_CYCLES.contains(&(name, path)) {
            faults.push(format!("{name} {path}: modules form a cycle: {cycle}"));
        }
    }
    for (_, path) in KNOWN_CYCLES.iter().filter(|(known, _)| *known == name) {
        if !cycles.iter().any(|(cyclic, _)| cyclic == path) {
            faults.push(format!("{name} {path}: no cycle any more: take it out of KNOWN_CYCLES"));
        }
    }
    Ok(faults)
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
