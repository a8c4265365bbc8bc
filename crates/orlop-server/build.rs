//! Takes the descriptions of built-in types out of the k8s-openapi crate, so that `kubectl explain` has
//! something to say.
//!
//! The crate's sources hold each type's schema as a literal. They are read as text: compiling the crate for
//! this would cost every build most of a minute. Without the sources there are no descriptions, and
//! everything else works.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

const VERSION: &str = "src/v1_37";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../../Cargo.toml");
    let mut text = String::new();
    match sources() {
        Some(folder) => read_folder(&folder, &mut text),
        None => println!(
            "cargo::warning=k8s-openapi's sources are not here: kubectl explain will have no descriptions"
        ),
    }
    let mut compressed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let written = compressed.write_all(text.as_bytes()).and_then(|()| compressed.finish());
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    if let Err(error) = written.and_then(|bytes| fs::write(folder.join("descriptions.gz"), bytes)) {
        println!("cargo::error=descriptions could not be written: {error}");
    }
}

/// Where cargo keeps the crate.
fn sources() -> Option<PathBuf> {
    let cargo = env::var_os("CARGO")?;
    let output =
        Command::new(cargo).args(["metadata", "--format-version", "1", "--offline"]).output().ok()?;
    let metadata = String::from_utf8(output.stdout).ok()?;
    let manifests = metadata.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let folders = manifests.filter_map(|manifest| Path::new(manifest).parent());
    let is_crate = |folder: &&Path| {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("k8s-openapi") && !name.starts_with("k8s-openapi-derive")
    };
    folders.into_iter().find(is_crate).map(|folder| folder.join(VERSION)).filter(|folder| folder.is_dir())
}

fn read_folder(folder: &Path, to: &mut String) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            read_folder(&path, to);
        } else if let Ok(source) = fs::read_to_string(&path) {
            read_source(&source, to);
        }
    }
}

/// Appends `type`, `field` and description as lines of three columns; an empty field is the type itself.
/// What belongs to what is told by indentation, the sources being generated.
fn read_source(source: &str, to: &mut String) {
    let Some((_, schema)) = source.split_once("fn schema_name()") else { return };
    let mut lines = schema.lines();
    let Some(name) = lines.by_ref().find_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\".into()"))
    else {
        return;
    };
    // Only what is stable is served.
    if name.contains(".v1alpha") || name.contains(".v1beta") || name.contains(".v2beta") {
        return;
    }
    let mut field = "";
    for line in lines {
        let indentation = line.len() - line.trim_start().len();
        let line = line.trim();
        // A field that refers to another type gets its description by a call.
        let called = line.strip_prefix("schema_obj.ensure_object().insert(\"description\".into(), ");
        let described = line
            .strip_prefix("\"description\": ")
            .map(|rest| rest.trim_end_matches(','))
            .or_else(|| called.and_then(|rest| rest.strip_suffix(".into());")));
        match (indentation, described) {
            (12, Some(text)) => drop(writeln!(to, "{name}\t\t{text}")),
            (16, None) => {
                let opened = line.strip_suffix("\": {").or_else(|| line.strip_suffix("\": ({"));
                field = opened.and_then(|rest| rest.strip_prefix('"')).unwrap_or_default();
            }
            (20, Some(text)) if !field.is_empty() => drop(writeln!(to, "{name}\t{field}\t{text}")),
            _ => {}
        }
    }
}
