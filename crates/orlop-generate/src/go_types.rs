//! Facts of Kubernetes' Go types that OpenAPI leaves out: protobuf's field numbers, the types that Go's decoder names, and what
//! its encoder omits.
//!
//! Only what that needs is parsed: imports, `type T struct {`, and the fields of it up to the closing brace.

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
    /// The type as declared, without a pointer.
    of: String,
    /// The type as Go's errors name it, without a pointer.
    printed: String,
    number: u32,
    pointer: bool,
    omit_empty: bool,
    omit_zero: bool,
}

/// The place of a JSON field in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Field numbers that lead to it: more than one where it belongs to an inlined struct.
    pub(crate) path: String,
    /// Go holds it by pointer, so that absence differs from zero.
    pub(crate) pointer: bool,
    /// The type as Go's errors name it.
    pub(crate) go_type: String,
    /// Names of the inlined structs that it belongs to, with dots; empty for a field of its own type.
    pub(crate) embedded: String,
    pub(crate) omit_empty: bool,
    pub(crate) omit_zero: bool,
}

impl Place {
    /// Returns true if Go encodes the field as null where it is not set.
    pub(crate) fn is_nullable(&self) -> bool {
        let is_nil = self.pointer || self.go_type.starts_with('[') || self.go_type.starts_with("map[");
        // A struct is never empty, so these are null even with `omitempty`.
        let is_time = matches!(self.go_type.as_str(), "v1.Time" | "v1.MicroTime") && !self.pointer;
        !self.omit_zero && (is_time || (is_nil && !self.omit_empty))
    }

    /// Returns true if Go omits a zero of the field.
    pub(crate) fn omits_zero(&self) -> bool {
        self.omit_empty && !self.pointer
    }
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
        let name = package.rsplit('.').next().unwrap_or_default();
        let structs = read_package(&folder, name)?;
        for name in structs.keys() {
            let mut places = BTreeMap::new();
            flatten(&structs, name, ("", ""), &mut places);
            types.0.insert(format!("{package}.{name}"), places);
        }
    }
    Ok(types)
}

fn read_package(folder: &Path, package: &str) -> Result<BTreeMap<String, Vec<GoField>>> {
    let mut structs = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated") {
            parse(package, &fs::read_to_string(entry.path())?, &mut structs);
        }
    }
    Ok(structs)
}

fn parse(package: &str, source: &str, structs: &mut BTreeMap<String, Vec<GoField>>) {
    let imports = imports(source);
    let mut current: Option<(String, Vec<GoField>)> = None;
    for line in source.lines() {
        match &mut current {
            None => {
                let name = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" struct {"));
                current = name.map(|name| (name.to_owned(), Vec::new()));
            }
            Some(_) if line == "}" => structs.extend(current.take()),
            Some((_, fields)) => fields.extend(parse_field(line, package, &imports)),
        }
    }
}

/// Returns the names of the packages that a file imports under another name.
fn imports(source: &str) -> BTreeMap<&str, &str> {
    let lines = source.lines().take_while(|line| !line.starts_with("type ")).map(str::trim);
    lines.filter_map(import).collect()
}

/// `metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"`
fn import(line: &str) -> Option<(&str, &str)> {
    let (alias, path) = line.strip_prefix("import ").unwrap_or(line).split_once(' ')?;
    Some((alias, path.strip_prefix('"')?.strip_suffix('"')?.rsplit('/').next()?))
}

/// ``Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,1,opt,name=replicas"` ``
fn parse_field(line: &str, package: &str, imports: &BTreeMap<&str, &str>) -> Option<GoField> {
    let (declaration, tags) = line.trim().split_once('`')?;
    if declaration.starts_with("//") {
        return None;
    }
    let number = tag(tags, "protobuf")?.split(',').nth(1)?.parse().ok()?;
    let mut json = tag(tags, "json").unwrap_or_default().split(',');
    let name = json.next().unwrap_or_default();
    let options: Vec<&str> = json.collect();
    let mut words = declaration.split_whitespace();
    let (first, second) = (words.next()?, words.next());
    let declared = second.unwrap_or(first);
    // A named field without a JSON name belongs to a type that has a JSON form of its own.
    if name.is_empty() && second.is_some() {
        return None;
    }
    let of = declared.trim_start_matches('*');
    Some(GoField {
        json: name.to_owned(),
        of: of.to_owned(),
        printed: printed(of, package, imports),
        number,
        pointer: declared.starts_with('*'),
        omit_empty: options.contains(&"omitempty"),
        omit_zero: options.contains(&"omitzero"),
    })
}

/// Returns a type as `reflect` prints it: with the package's own name, and `uint8` for `byte`.
fn printed(of: &str, package: &str, imports: &BTreeMap<&str, &str>) -> String {
    if let Some(item) = of.strip_prefix("[]") {
        return format!("[]{}", printed(item, package, imports));
    }
    if let Some(item) = of.strip_prefix('*') {
        return format!("*{}", printed(item, package, imports));
    }
    if let Some((key, item)) = of.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{}]{}", printed(key, package, imports), printed(item, package, imports));
    }
    match of.split_once('.') {
        Some((alias, name)) => format!("{}.{name}", imports.get(alias).unwrap_or(&alias)),
        None if of == "byte" => "uint8".to_owned(),
        None if of.starts_with(char::is_uppercase) => format!("{package}.{of}"),
        None => of.to_owned(),
    }
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tags.split_once(&format!("{name}:\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// Collects the fields of a struct, those of its inlined structs included.
fn flatten(
    structs: &BTreeMap<String, Vec<GoField>>,
    name: &str,
    (prefix, embedded): (&str, &str),
    to: &mut BTreeMap<String, Place>,
) {
    for field in structs.get(name).into_iter().flatten() {
        let path = format!("{prefix}{}", field.number);
        if field.json.is_empty() {
            let name = field.of.rsplit('.').next().unwrap_or_default();
            flatten(structs, &field.of, (&format!("{path}."), &format!("{embedded}{name}.")), to);
            continue;
        }
        let place = Place {
            path,
            pointer: field.pointer,
            go_type: field.printed.clone(),
            embedded: embedded.to_owned(),
            omit_empty: field.omit_empty,
            omit_zero: field.omit_zero,
        };
        to.insert(field.json.clone(), place);
    }
}
