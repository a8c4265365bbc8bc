//! Discovery.

use orlop_api::schema::builtin;
use serde_json::{Value, json};

use crate::support::{ask, get, server, whole};

/// A resource of unaggregated discovery, for comparison with the tables.
fn next_short(resource: &Value) -> (bool, &str, Vec<&str>, Vec<&str>, Vec<&str>) {
    let texts = |field: &str| {
        resource[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>()
    };
    let (kind, namespaced) = (resource["kind"].as_str().unwrap(), resource["namespaced"].as_bool().unwrap());
    (namespaced, kind, texts("verbs"), texts("shortNames"), texts("categories"))
}

#[tokio::test]
async fn discovery_lists_verbs_names_and_subresources() {
    let (chain, _store) = server().await;
    let mut compared = 0;
    for known in builtin::resources() {
        let path = match known.group {
            "" => format!("/api/{}", known.version),
            group => format!("/apis/{group}/{}", known.version),
        };
        let (_, document) = get(&chain, &path).await;
        let find = |name: &str| {
            let resources = document["resources"].as_array().unwrap();
            let found = resources.iter().find(|resource| resource["name"] == name);
            found.unwrap_or_else(|| panic!("{name} is not in {path}")).clone()
        };
        let resource = find(known.plural);
        let expected = (
            known.namespaced,
            known.kind,
            known.verbs.to_vec(),
            known.short_names.to_vec(),
            known.categories.to_vec(),
        );
        assert_eq!(next_short(&resource), expected, "{} in {path}", known.plural);
        assert_eq!(resource["singularName"], known.singular);
        for subresource in &known.subresources {
            let found = find(&format!("{}/{}", known.plural, subresource.name));
            assert_eq!(found["kind"], subresource.kind);
            assert_eq!(next_short(&found).2, subresource.verbs.to_vec());
        }
        compared += 1;
    }
    assert!(compared > 60, "only {compared} kinds");
}

#[tokio::test]
async fn storage_version_hash_matches_kubernetes() {
    let (chain, _store) = server().await;
    for (path, name, hash) in [
        ("/api/v1", "pods", "xPOwRZ+Yhw8="),
        ("/api/v1", "configmaps", "qFsyl6wFWjQ="),
        ("/apis/apps/v1", "deployments", "8aSe+NMegvE="),
        ("/apis/coordination.k8s.io/v1", "leases", "gqkMMb/YqFM="),
    ] {
        let (_, document) = get(&chain, path).await;
        let resources = document["resources"].as_array().unwrap();
        let resource = resources.iter().find(|resource| resource["name"] == name).unwrap();
        assert_eq!(resource["storageVersionHash"], hash, "{name}");
    }
    // As in Kubernetes: the core group's list has no apiVersion, and unstored kinds have no hash.
    let (_, core) = get(&chain, "/api/v1").await;
    assert_eq!((core.get("apiVersion"), core["groupVersion"].as_str()), (None, Some("v1")));
    let statuses = core["resources"].as_array().unwrap().iter().find(|it| it["name"] == "componentstatuses");
    assert!(statuses.unwrap().get("storageVersionHash").is_none());
}

#[tokio::test]
async fn aggregated_discovery_honours_etags() {
    let (chain, _store) = server().await;
    for version in ["v2", "v2beta1"] {
        let media_type =
            format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        for (path, group, resource) in [("/api", "", "pods"), ("/apis", "apps", "deployments")] {
            let headers = [("accept", media_type.as_str())];
            let (code, headers, body) = whole(ask(&chain, "GET", path, &headers, "").await).await;
            assert_eq!((code, headers["content-type"].to_str().unwrap()), (200, media_type.as_str()));
            assert_eq!(
                (&headers["vary"], &headers["cache-control"]),
                (&"Accept".parse().unwrap(), &"public".parse().unwrap())
            );
            let list: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(list["apiVersion"], format!("apidiscovery.k8s.io/{version}"));
            let groups = list["items"].as_array().unwrap();
            let found = groups
                .iter()
                .find(|it| it["metadata"]["name"].as_str().unwrap_or_default() == group)
                .unwrap();
            let resources = found["versions"][0]["resources"].as_array().unwrap();
            let found = resources.iter().find(|it| it["resource"] == resource).unwrap();
            assert_eq!((&found["scope"], &found["categories"]), (&json!("Namespaced"), &json!(["all"])));
            assert!(found["subresources"].as_array().unwrap().iter().any(|it| it["subresource"] == "status"));

            let tag = headers["etag"].to_str().unwrap();
            assert!(tag.len() == 130 && tag.starts_with('"'), "a quoted SHA-512: {tag}");
            let again = [("accept", media_type.as_str()), ("if-none-match", tag)];
            let (code, _, body) = whole(ask(&chain, "GET", path, &again, "").await).await;
            assert_eq!((code, body.len()), (304, 0));
        }
    }
    // Unknown versions are not acceptable; the highest quality wins.
    let unknown = "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList";
    assert_eq!(ask(&chain, "GET", "/api", &[("accept", unknown)], "").await.status(), 406);
    let plain = format!("application/json, {}", unknown.replace("v3", "v2"));
    let (_, headers, _) = whole(ask(&chain, "GET", "/api", &[("accept", &plain)], "").await).await;
    assert_eq!(headers["content-type"], "application/json");
    // Other clients get unaggregated discovery.
    let (_, groups) = get(&chain, "/apis").await;
    assert_eq!(
        (&groups["kind"], &groups["groups"][0]["name"]),
        (&json!("APIGroupList"), &json!("apiregistration.k8s.io"))
    );
}
