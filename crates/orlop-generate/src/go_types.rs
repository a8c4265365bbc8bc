//! Protobuf's field numbers, from the struct tags of Kubernetes' Go types.
//!
//! Only what the tags need is parsed: `type T struct {`, and the fields of it up to the closing brace.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};

use crate::modules::Modules;

/// One field of a Go struct that has a protobuf number.
#[derive(Clone, Debug)]
struct GoField {
    /// The name in JSON; empty where the struct's fields are inlined.
    json: String,
    /// The type's name.
    of: String,
    number: u32,
    pointer: bool,
}

/// The place of a JSON field in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Field numbers that lead to it: more than one where it belongs to an inlined struct.
    pub(crate) path: String,
    /// Go holds it by pointer, so that absence differs from zero.
    pub(crate) pointer: bool,
}

/// Places of fields, by OpenAPI type name and JSON name.
#[derive(Debug, Default)]
pub(crate) struct GoTypes(BTreeMap<String, BTreeMap<String, Place>>);

impl GoTypes {
    pub(crate) fn place(&self, type_name: &str, field: &str) -> Option<&Place> {
        self.0.get(type_name)?.get(field)
    }
}

/// Reads the Go types of the packages of some OpenAPI types.
pub(crate) fn read<'a>(modules: &Modules, names: impl Iterator<Item = &'a str>) -> Result<GoTypes> {
    let packages: BTreeSet<&str> =
        names.filter_map(|name| name.rsplit_once('.').map(|(package, _)| package)).collect();
    let mut types = GoTypes::default();
    for package in packages {
        let folder = modules.package(package).with_context(|| format!("no module has {package}"))?;
        let structs = read_package(&folder)?;
        for name in structs.keys() {
            let mut places = BTreeMap::new();
            flatten(&structs, name, "", &mut places);
            types.0.insert(format!("{package}.{name}"), places);
        }
    }
    Ok(types)
}

fn read_package(folder: &Path) -> Result<BTreeMap<String, Vec<GoField>>> {
    let mut structs = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated") {
            parse(&fs::read_to_string(entry.path())?, &mut structs);
        }
    }
    Ok(structs)
}

fn parse(source: &str, structs: &mut BTreeMap<String, Vec<GoField>>) {
    let mut current: Option<(String, Vec<GoField>)> = None;
    for line in source.lines() {
        match &mut current {
            None => {
                let name = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" struct {"));
                current = name.map(|name| (name.to_owned(), Vec::new()));
            }
            Some(_) if line == "}" => structs.extend(current.take()),
            Some((_, fields)) => fields.extend(parse_field(line)),
        }
    }
}

/// ``Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,1,opt,name=replicas"` ``
fn parse_field(line: &str) -> Option<GoField> {
    let (declaration, tags) = line.trim().split_once('`')?;
    if declaration.starts_with("//") {
        return None;
    }
    let number = tag(tags, "protobuf")?.split(',').nth(1)?.parse().ok()?;
    let json = tag(tags, "json").unwrap_or_default().split(',').next().unwrap_or_default();
    let mut words = declaration.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    let declared = second.unwrap_or(first);
    // A named field without a JSON name belongs to a type that has a JSON form of its own.
    if json.is_empty() && second.is_some() {
        return None;
    }
    Some(GoField {
        json: json.to_owned(),
        of: declared.trim_start_matches('*').to_owned(),
        number,
        pointer: declared.starts_with('*'),
    })
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tags.split_once(&format!("{name}:\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// Collects the fields of a struct, those of its inlined structs included.
fn flatten(
    structs: &BTreeMap<String, Vec<GoField>>,
    name: &str,
    prefix: &str,
    to: &mut BTreeMap<String, Place>,
) {
    for field in structs.get(name).into_iter().flatten() {
        let path = format!("{prefix}{}", field.number);
        if field.json.is_empty() {
            flatten(structs, &field.of, &format!("{path}."), to);
        } else {
            to.insert(field.json.clone(), Place { path, pointer: field.pointer });
        }
    }
}
