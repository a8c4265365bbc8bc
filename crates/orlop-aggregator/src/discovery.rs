//! Discovery documents of extension API servers. They are decoded into types and encoded again: nothing else of a
//! document reaches clients.

use std::collections::HashMap;

use http::{HeaderMap, header};
use serde::{Deserialize, Deserializer, Serialize};

/// Media type of aggregated discovery.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Resources of a group version; a document with more is refused.
const RESOURCES_MAX: usize = 10_000;

/// A document that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// It is not what it should be.
    #[error("invalid discovery document: {0}")]
    Invalid(#[from] serde_json::Error),
    /// It has too many resources.
    #[error("invalid discovery document: more than {RESOURCES_MAX} resources")]
    TooLong,
    /// A subresource is in another scope than its resource.
    #[error("invalid discovery document: the scopes of {0} and of its subresource {1} do not match")]
    Scope(String, String),
}

/// Reads null as the default.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Group, version and kind of responses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseKind {
    group: String,
    version: String,
    kind: String,
}

/// A subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subresource {
    subresource: String,
    #[serde(deserialize_with = "or_default")]
    response_kind: ResponseKind,
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
}

/// Scope of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Its objects are in no namespace.
    Cluster,
    /// Its objects are in namespaces.
    #[default]
    Namespaced,
}

impl Scope {
    fn of(namespaced: bool) -> Self {
        if namespaced { Self::Namespaced } else { Self::Cluster }
    }
}

/// A resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resource {
    resource: String,
    #[serde(deserialize_with = "or_default")]
    response_kind: ResponseKind,
    scope: Scope,
    singular_resource: String,
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    categories: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<Subresource>,
}

impl Resource {
    /// Returns its plural name.
    pub fn name(&self) -> &str {
        &self.resource
    }

    /// Returns the kind of its objects.
    pub fn kind(&self) -> &str {
        &self.response_kind.kind
    }

    /// Returns true if it serves a verb.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|allowed| allowed == verb)
    }
}

/// The resources of group versions.
pub type Resources = HashMap<(String, String), Vec<Resource>>;

/// Returns true if a response is an aggregated discovery document of version 2.
pub fn is_aggregated(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut parts = content_type.unwrap_or_default().split(';').map(str::trim);
    let is_json = parts.next() == Some("application/json");
    let parameters: Vec<&str> = parts.collect();
    is_json
        && ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"]
            .iter()
            .all(|wanted| parameters.contains(wanted))
}

/// Reads an aggregated document. `wanted` are the group versions to keep.
pub fn parse_aggregated(
    document: &[u8],
    wanted: impl Fn(&str, &str) -> bool,
) -> Result<Resources, DiscoveryError> {
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Metadata {
        name: String,
    }
    #[derive(Deserialize)]
    struct Version {
        version: String,
        #[serde(default, deserialize_with = "or_default")]
        resources: Vec<Resource>,
    }
    #[derive(Deserialize)]
    struct Group {
        #[serde(default)]
        metadata: Metadata,
        #[serde(default, deserialize_with = "or_default")]
        versions: Vec<Version>,
    }
    #[derive(Deserialize)]
    struct List {
        #[serde(default, deserialize_with = "or_default")]
        items: Vec<Group>,
    }
    let list: List = serde_json::from_slice(document)?;
    let mut resources = Resources::new();
    for group in list.items {
        for version in group.versions {
            if wanted(&group.metadata.name, &version.version) {
                check_length(&version.resources)?;
                resources.insert((group.metadata.name.clone(), version.version), version.resources);
            }
        }
    }
    Ok(resources)
}

/// Reads the APIResourceList of a group version.
pub fn parse_legacy(document: &[u8], group: &str, version: &str) -> Result<Vec<Resource>, DiscoveryError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Listed {
        name: String,
        #[serde(default)]
        singular_name: String,
        #[serde(default)]
        namespaced: bool,
        #[serde(default)]
        kind: String,
        #[serde(default)]
        group: String,
        #[serde(default)]
        version: String,
        #[serde(default, deserialize_with = "or_default")]
        verbs: Vec<String>,
        #[serde(default, deserialize_with = "or_default")]
        short_names: Vec<String>,
        #[serde(default, deserialize_with = "or_default")]
        categories: Vec<String>,
    }
    #[derive(Deserialize)]
    struct List {
        resources: Vec<Listed>,
    }
    let list: List = serde_json::from_slice(document)?;
    check_length(&list.resources)?;
    let kind = |listed: &Listed| {
        let or = |own: &str, other: &str| if own.is_empty() { other.to_owned() } else { own.to_owned() };
        let is_elsewhere = !listed.group.is_empty() || !listed.version.is_empty();
        ResponseKind {
            group: if is_elsewhere { listed.group.clone() } else { group.to_owned() },
            version: or(&listed.version, version),
            kind: listed.kind.clone(),
        }
    };
    let mut resources: Vec<Resource> = Vec::new();
    let (parents, children): (Vec<&Listed>, Vec<&Listed>) =
        list.resources.iter().partition(|listed| !listed.name.contains('/'));
    for listed in parents {
        resources.push(Resource {
            resource: listed.name.clone(),
            response_kind: kind(listed),
            scope: Scope::of(listed.namespaced),
            singular_resource: listed.singular_name.clone(),
            verbs: listed.verbs.clone(),
            short_names: listed.short_names.clone(),
            categories: listed.categories.clone(),
            subresources: Vec::new(),
        });
    }
    for listed in children {
        let Some((parent, name)) = listed.name.split_once('/') else { continue };
        let scope = Scope::of(listed.namespaced);
        let index = match resources.iter().position(|resource| resource.resource == parent) {
            Some(index) => index,
            None => {
                resources.push(Resource { resource: parent.to_owned(), scope, ..Resource::default() });
                resources.len() - 1
            }
        };
        let Some(resource) = resources.get_mut(index) else { continue };
        if resource.scope != scope {
            return Err(DiscoveryError::Scope(parent.to_owned(), name.to_owned()));
        }
        let response_kind = if listed.kind.is_empty() { ResponseKind::default() } else { kind(listed) };
        let verbs = listed.verbs.clone();
        resource.subresources.push(Subresource { subresource: name.to_owned(), response_kind, verbs });
    }
    Ok(resources)
}

fn check_length<T>(resources: &[T]) -> Result<(), DiscoveryError> {
    if resources.len() > RESOURCES_MAX { Err(DiscoveryError::TooLong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn aggregated_document_is_read_and_told_by_its_media_type() {
        let mut headers = HeaderMap::new();
        assert!(!is_aggregated(&headers));
        headers.insert(header::CONTENT_TYPE, AGGREGATED.parse().unwrap());
        assert!(is_aggregated(&headers));
        headers.insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
        assert!(!is_aggregated(&headers));

        let document = json!({"items": [
            {"metadata": {"name": "a"}, "versions": [{"version": "v1", "resources": [
                {"resource": "lamps", "responseKind": null, "scope": "Cluster", "verbs": ["get"], "evil": 1}]}]},
            {"metadata": {"name": "other"}, "versions": [{"version": "v1"}]},
        ]});
        let read = parse_aggregated(document.to_string().as_bytes(), |group, _| group == "a").unwrap();
        assert_eq!(read.len(), 1);
        let lamps = &read[&("a".to_owned(), "v1".to_owned())][0];
        assert_eq!(
            serde_json::to_value(lamps).unwrap(),
            json!({"resource": "lamps", "responseKind": {"group": "", "version": "", "kind": ""},
                "scope": "Cluster", "singularResource": "", "verbs": ["get"]})
        );
    }

    #[test]
    fn legacy_document_becomes_resources_with_subresources() {
        let document = json!({"resources": [
            {"name": "lamps/scale", "namespaced": true, "kind": "Scale", "group": "autoscaling", "version": "v1",
                "verbs": ["get"]},
            {"name": "lamps", "singularName": "lamp", "namespaced": true, "kind": "Lamp", "verbs": ["get"],
                "shortNames": ["lp"]},
            {"name": "orphans/status", "namespaced": false, "kind": "", "verbs": null},
        ]});
        let read = parse_legacy(document.to_string().as_bytes(), "a", "v1").unwrap();
        let told = serde_json::to_value(&read).unwrap();
        assert_eq!(told[0]["responseKind"], json!({"group": "a", "version": "v1", "kind": "Lamp"}));
        let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        assert_eq!(told[0]["subresources"][0]["responseKind"], scale);
        assert_eq!((&told[1]["resource"], &told[1]["scope"]), (&json!("orphans"), &json!("Cluster")));
        let mixed =
            json!({"resources": [{"name": "a", "namespaced": true}, {"name": "a/b", "namespaced": false}]});
        assert!(parse_legacy(mixed.to_string().as_bytes(), "a", "v1").is_err());
    }

    proptest! {
        #[test]
        fn nonsense_is_an_error_or_ignored(text in "\\PC{0,80}", items in prop::collection::vec(any::<i32>(), 0..4)) {
            let _ = parse_aggregated(text.as_bytes(), |_, _| true);
            let _ = parse_legacy(text.as_bytes(), "a", "v1");
            let document = json!({"items": items, "resources": items}).to_string();
            prop_assert_eq!(parse_aggregated(document.as_bytes(), |_, _| true).is_ok(), items.is_empty());
            prop_assert_eq!(parse_legacy(document.as_bytes(), "a", "v1").is_ok(), items.is_empty());
        }
    }
}
