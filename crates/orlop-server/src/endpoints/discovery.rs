//! Discovery: groups, versions and resources, as a document per group version and as an aggregated one.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue, Response, header};
use orlop_api::{group_version::compare_versions, status::Status};
use serde_json::{Value, json};
use sha2::{Digest, Sha256, Sha512};

use crate::{
    cluster::Cluster,
    http::{
        body::Body,
        negotiation::{Encoding, MEDIA_TYPES, Offers, clauses, negotiate},
        response::{self, not_found},
    },
    registry::{Kind, Kinds},
};

/// Priorities of groups, highest first.
const PRIORITIES: &[(&str, i64)] = &[
    ("apiregistration.k8s.io", 20000),
    ("", 18000),
    ("apps", 17800),
    ("events.k8s.io", 17750),
    ("authentication.k8s.io", 17700),
    ("authorization.k8s.io", 17600),
    ("autoscaling", 17500),
    ("batch", 17400),
    ("certificates.k8s.io", 17300),
    ("networking.k8s.io", 17200),
    ("policy", 17100),
    ("rbac.authorization.k8s.io", 17000),
    ("storage.k8s.io", 16800),
    ("apiextensions.k8s.io", 16700),
    ("admissionregistration.k8s.io", 16700),
    ("scheduling.k8s.io", 16600),
    ("coordination.k8s.io", 16500),
    ("node.k8s.io", 16300),
    ("discovery.k8s.io", 16200),
    ("resource.k8s.io", 16200),
    ("flowcontrol.apiserver.k8s.io", 16100),
    ("storagemigration.k8s.io", 15800),
];
const PRIORITY_OF_OTHERS: i64 = 1000;

/// Answers `/api…` and `/apis…`.
pub(crate) fn answer(
    cluster: &Cluster,
    segments: &[&str],
    headers: &HeaderMap,
) -> Result<Response<Body>, Status> {
    let kinds = cluster.objects.registry.kinds();
    let aggregated = aggregated_version(headers);
    let document = match segments {
        ["api"] | ["apis"] if aggregated.is_some() => {
            let version = aggregated.unwrap_or_default();
            return Ok(aggregated_document(&kinds, segments == ["api"], version, headers));
        }
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
        }),
        ["apis"] => {
            let groups: Vec<Value> =
                groups(&kinds).iter().filter(|(group, _)| !group.is_empty()).map(group).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] => match groups(&kinds).iter().find(|(group, _)| group == name) {
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

/// Returns groups by priority, each with its versions, newest first.
fn groups(kinds: &Kinds) -> Vec<(String, Vec<String>)> {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in kinds.iter() {
        let known = versions.entry(kind.gvk.group.clone()).or_default();
        if !known.contains(&kind.gvk.version) {
            known.push(kind.gvk.version.clone());
        }
    }
    let priority = |group: &str| {
        let known = PRIORITIES.iter().find(|(name, _)| *name == group);
        known.map_or(PRIORITY_OF_OTHERS, |(_, priority)| *priority)
    };
    let mut groups: Vec<_> = versions.into_iter().collect();
    groups.sort_by_key(|(group, _)| std::cmp::Reverse(priority(group)));
    for (_, versions) in &mut groups {
        versions.sort_by(|one, other| compare_versions(other, one));
    }
    groups
}

fn group((name, versions): &(String, Vec<String>)) -> Value {
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

fn aggregated_document(kinds: &Kinds, core: bool, version: &str, headers: &HeaderMap) -> Response<Body> {
    let groups = groups(kinds);
    let items: Vec<Value> = groups
        .iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
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
