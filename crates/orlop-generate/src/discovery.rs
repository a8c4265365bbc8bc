//! `resources.tsv`: every resource of a stable version, from Kubernetes' published discovery documents.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::Deserialize;

const HEADER: &str =
    "group\tversion\tplural\tsingular\tkind\tscope\tverbs\tshortNames\tcategories\tsubresources\n";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceList {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    group_version: String,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    name: String,
    singular_name: String,
    namespaced: bool,
    kind: String,
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    /// Group and version of a subresource's kind, where they are not the resource's own.
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
}

/// Returns the table of all stable resources, the core group first.
pub(crate) fn table(folder: &Path) -> Result<String> {
    let mut table = HEADER.to_owned();
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let list: ResourceList =
            serde_json::from_slice(&fs::read(&path)?).with_context(|| path.display().to_string())?;
        let (group, version) = list.group_version.split_once('/').unwrap_or(("core", &list.group_version));
        if list.kind == "APIResourceList" && is_stable(version) {
            append_rows(&mut table, group, version, &list.resources);
        }
    }
    Ok(table)
}

/// `v1` and `v2` are stable; `v1beta1` and `v1alpha1` are not.
fn is_stable(version: &str) -> bool {
    version
        .strip_prefix('v')
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

fn append_rows(table: &mut String, group: &str, version: &str, resources: &[Resource]) {
    let mut subresources: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for resource in resources {
        if let Some((parent, name)) = resource.name.split_once('/') {
            subresources.entry(parent).or_default().push(subresource(name, resource));
        }
    }
    for resource in resources.iter().filter(|resource| !resource.name.contains('/')) {
        let columns = [
            group,
            version,
            &resource.name,
            &resource.singular_name,
            &resource.kind,
            if resource.namespaced { "ns" } else { "cluster" },
            &resource.verbs.join(","),
            &resource.short_names.join(","),
            &resource.categories.join(","),
            &subresources.get(resource.name.as_str()).map_or_else(String::new, |all| all.join("; ")),
        ];
        table.push_str(&columns.join("\t"));
        table.push('\n');
    }
}

/// `scale=autoscaling/v1:Scale[get,patch,update]`.
fn subresource(name: &str, resource: &Resource) -> String {
    let api_version = match (resource.group.as_str(), resource.version.as_str()) {
        (_, "") => String::new(),
        ("", version) => format!("{version}:"),
        (group, version) => format!("{group}/{version}:"),
    };
    format!("{name}={api_version}{}[{}]", resource.kind, resource.verbs.join(","))
}
