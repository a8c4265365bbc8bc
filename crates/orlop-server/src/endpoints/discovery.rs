//! Discovery: groups, versions and resources, as a document per group version and as an aggregated one.

use http::{HeaderMap, HeaderValue, Response, header};
use orlop_aggregator::{
    api_service::GROUP,
    priorities::{self, OrderedGroup},
};
use orlop_api::status::Status;
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};

use crate::{
    aggregation::{Catalog, Documents},
    cluster::Cluster,
    http::{
        body::Body,
        negotiation::{Encoding, MEDIA_TYPES, Offers, clauses, negotiate},
        response::{self, not_found},
    },
    registry::{Kind, Kinds},
};

/// Answers `/api…` and `/apis…`.
pub(crate) fn answer(
    cluster: &Cluster,
    segments: &[&str],
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let kinds = cluster.objects.registry.kinds();
    let catalog = cluster.aggregator.catalog();
    let aggregated = aggregated_version(headers);
    let document = match segments {
        ["api"] | ["apis"] if aggregated.is_some() => {
            let version = aggregated.unwrap_or_default();
            return Ok(aggregated_document(&kinds, &catalog, segments == ["api"], version, headers));
        }
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
        }),
        ["apis"] => {
            let groups: Vec<Value> =
                groups(&kinds, &catalog).iter().filter(|(group, _)| !group.is_empty()).map(group).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] => match groups(&kinds, &catalog).iter().find(|(group, _)| group == name) {
            Some(found) => {
                let mut document = group(found);
                document["kind"] = "APIGroup".into();
                document["apiVersion"] = "v1".into();
                document
            }
            None => return Ok(not_found()),
        },
        ["api", version] => return resources(&kinds, "", version, headers),
        ["apis", group, version] => return resources(&kinds, group, version, headers),
        _ => return Ok(not_found()),
    };
    let routed = if segments == ["api"] { MEDIA_TYPES } else { &[] };
    page(headers, routed, &document)
}

/// Responds with a document. `routed` are the media types that kube-apiserver's router lists, if it has one.
fn page(
    headers: &HeaderMap,
    routed: &'static [&'static str],
    document: &Value,
) -> Result<Response<Body>, Status> {
    let negotiated = negotiate(headers, None, Offers { protobuf: true, transforms: false, routed })?;
    Ok(response::bytes(
        200,
        negotiated.encoding.media_type(),
        response::encode(negotiated.encoding, document),
    ))
}

/// Returns groups by priority, each with its versions, the preferred one first. APIServices say the priorities, and add
/// the groups of extension API servers.
fn groups(kinds: &Kinds, catalog: &Catalog) -> Vec<OrderedGroup> {
    let mut known: Vec<(&str, &str)> = Vec::new();
    for kind in kinds.iter() {
        let version = (kind.gvk.group.as_str(), kind.gvk.version.as_str());
        if known.last() != Some(&version) {
            known.push(version);
        }
    }
    let remotes = catalog.remotes().map(|remote| {
        let service = &remote.service;
        (service.group.as_str(), service.version.as_str())
    });
    let with_priority = |(group, version): (&str, &str)| {
        let priority = if group == GROUP { None } else { catalog.priority(group, version) };
        let priority = priority.unwrap_or_else(|| priorities::of_local(group, version));
        (group.to_owned(), version.to_owned(), priority)
    };
    priorities::ordered(known.into_iter().chain(remotes).map(with_priority))
}

fn group((name, versions): &OrderedGroup) -> Value {
    let version = |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({
        "name": name,
        "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(version),
    })
}

/// Responds with the resources of a group version.
fn resources(
    kinds: &Kinds,
    group: &str,
    version: &str,
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    if !kinds.has_version(group, version) {
        return if kinds.has_builtin_group(group) {
            Err(Status::resource_unknown())
        } else {
            Ok(not_found())
        };
    }
    let mut here: Vec<_> = kinds.of_version(group, version).collect();
    here.sort_by(|one, other| one.resource.cmp(&other.resource));
    let resources: Vec<Value> = here.into_iter().flat_map(|kind| listed(kind)).collect();
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut document =
        json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    let routed = if kinds.has_builtin_group(group) { MEDIA_TYPES } else { &[] };
    page(headers, routed, &document)
}

/// Returns a resource and its subresources: sorted for built-in kinds, in Kubernetes' order for custom ones.
fn listed(kind: &Kind) -> Vec<Value> {
    let mut verbs: Vec<&String> = kind.verbs.iter().collect();
    let mut subresources: Vec<_> = kind.subresources.iter().collect();
    if !kind.flags.custom {
        verbs.sort_unstable();
        subresources.sort_by(|one, other| one.name.cmp(&other.name));
    }
    let mut resource = json!({
        "name": kind.resource, "singularName": kind.singular, "namespaced": kind.namespaced,
        "kind": kind.gvk.kind, "verbs": verbs,
    });
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    // A kind that is not stored has no storage version.
    if kind.allows("watch") {
        resource["storageVersionHash"] = storage_hash(kind).into();
    }
    let subresources = subresources.into_iter().map(|subresource| {
        let mut entry = json!({
            "name": format!("{}/{}", kind.resource, subresource.name), "singularName": "",
            "namespaced": kind.namespaced, "kind": subresource.gvk.kind, "verbs": subresource.verbs,
        });
        if subresource.gvk.group_version() != kind.gvk.group_version() {
            entry["group"] = subresource.gvk.group.clone().into();
            entry["version"] = subresource.gvk.version.clone().into();
        }
        entry
    });
    std::iter::once(resource).chain(subresources).collect()
}

fn storage_hash(kind: &Kind) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let stored = kind.storage.gvk();
    let text = format!("{}/{}/{}", stored.group, stored.version, stored.kind);
    STANDARD.encode(&Sha256::digest(text)[..8])
}

// --- aggregated discovery ---

/// Returns the version of aggregated discovery that a client accepts, if any.
fn aggregated_version(headers: &HeaderMap) -> Option<&'static str> {
    let accept = headers.get(header::ACCEPT)?.to_str().ok()?;
    for clause in clauses(accept).iter().filter(|clause| clause.media_type == "application/json") {
        match (clause.parameter("as"), clause.parameter("g"), clause.parameter("v")) {
            (None, ..) => return None,
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => return Some("v2"),
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2beta1")) => {
                return Some("v2beta1");
            }
            _ => {}
        }
    }
    None
}

fn aggregated_document(
    kinds: &Kinds,
    catalog: &Catalog,
    core: bool,
    version: &str,
    headers: &HeaderMap,
) -> Response<Body> {
    let groups = groups(kinds, catalog);
    let items: Vec<Value> = groups
        .iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    if let Some(remote) = catalog.remote(group, version) {
                        return remote_version(&remote.backend.documents(), group, version);
                    }
                    let here = kinds.of_version(group, version);
                    let resources: Vec<Value> = here.map(|kind| aggregated_resource(kind)).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    });
    let body = response::encode(Encoding::Json, &document);
    let digest: String = Sha512::digest(&body).iter().map(|byte| format!("{byte:02X}")).collect();
    let etag = format!("\"{digest}\"");
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let media_type = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    let mut response = if known == Some(etag.as_str()) {
        response::bytes(304, &media_type, Body::empty())
    } else {
        response::bytes(200, &media_type, body)
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

/// Returns what an extension API server says of a group version.
fn remote_version(documents: &Documents, group: &str, version: &str) -> Value {
    let known = documents.of(group, version);
    let freshness = if known.is_some_and(|known| !known.is_stale) { "Current" } else { "Stale" };
    let resources = known.map(|known| known.resources.as_slice()).unwrap_or_default();
    json!({"version": version, "freshness": freshness, "resources": resources})
}

fn aggregated_resource(kind: &Kind) -> Value {
    let response_kind = |gvk: &orlop_api::group_version::GroupVersionKind| json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind});
    let subresources: Vec<Value> = kind
        .subresources
        .iter()
        .map(|subresource| {
            json!({
                "subresource": subresource.name, "responseKind": response_kind(&subresource.gvk),
                "verbs": subresource.verbs,
            })
        })
        .collect();
    let mut resource = json!({
        "resource": kind.resource, "responseKind": response_kind(&kind.gvk),
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": kind.verbs,
    });
    for (name, list) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !list.is_empty() {
            resource[name] = json!(list);
        }
    }
    if !subresources.is_empty() {
        resource["subresources"] = subresources.into();
    }
    resource
}
