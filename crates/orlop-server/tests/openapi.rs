//! OpenAPI documents.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty};
use orlop_api::{group_version::GroupVersionKind, names::NameRule, schema::from_openapi};
use orlop_server::{
    Tokens, User,
    auth::issuer::Issuer,
    chain::Chain,
    cluster::Cluster,
    http::body::Body,
    registry::{DefaultStrategy, Kind, KindSchema, Kinds, Retirement, StaticOrBoxed, Storage, StrategyFlags},
    table::DEFAULT_COLUMNS,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};

async fn server() -> (Arc<Cluster>, Chain) {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Arc::new(Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap()));
    (cluster.clone(), Chain::new(cluster, Tokens::default()))
}

async fn get(chain: &Chain, path: &str, headers: &[(header::HeaderName, &str)]) -> Response<Body> {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let admin = User::authenticated("admin", ["system:masters".to_owned()]);
    chain.answer(request.body(Empty::<Bytes>::new()).unwrap(), Some(&admin)).await
}

async fn read(chain: &Chain, path: &str) -> Value {
    let response = get(chain, path, &[]).await;
    assert_eq!(response.status(), 200, "{path}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

/// Returns all references of a document.
fn references<'a>(value: &'a Value, to: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            to.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, to));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, to)),
        _ => {}
    }
}

fn check_references(document: &Value) {
    let mut found = Vec::new();
    references(document, &mut found);
    for reference in found {
        let path = reference.strip_prefix("#").unwrap();
        assert!(document.pointer(path).is_some(), "{reference}");
    }
}

/// Checks that all parameters in a path or query are described.
fn check_parameters(document: &Value) {
    let mut count = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let operations = item.as_object().unwrap().values().map(|operation| &operation["parameters"]);
        let lists = operations.chain([&item["parameters"]]).filter_map(Value::as_array);
        for parameter in lists.flatten().filter(|parameter| parameter["in"] != "body") {
            let description = parameter["description"].as_str().unwrap_or_default();
            assert!(!description.is_empty(), "{path}: {}", parameter["name"]);
            count += 1;
        }
    }
    assert!(count > 0);
}

/// Returns true if some operation has dryRun and fieldValidation, by which kubectl leaves them to the server.
fn can_patch(document: &Value, gvk: &GroupVersionKind) -> bool {
    let wanted = json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind});
    document["paths"].as_object().unwrap().values().any(|path| {
        let patch = &path["patch"];
        let lists = [&patch["parameters"], &path["parameters"]];
        let names =
            lists.iter().filter_map(|list| list.as_array()).flatten().map(|parameter| &parameter["name"]);
        let names: Vec<&Value> = names.collect();
        patch["x-kubernetes-group-version-kind"] == wanted
            && ["dryRun", "fieldValidation"].iter().all(|name| names.iter().any(|found| *found == name))
    })
}

#[tokio::test]
async fn every_version_has_a_complete_document() {
    let (cluster, chain) = server().await;
    let index = read(&chain, "/openapi/v3").await;
    let paths = index["paths"].as_object().unwrap();
    assert!(paths.contains_key("api/v1") && paths.contains_key("apis/apps/v1"), "{index}");
    for (path, entry) in paths {
        let document = read(&chain, entry["serverRelativeURL"].as_str().unwrap()).await;
        check_references(&document);
        if document["paths"].as_object().unwrap().len() > 1 {
            check_parameters(&document);
        }
        for kind in cluster.objects.registry.kinds().iter().filter(|kind| kind.allows("patch")) {
            let gvk = &kind.gvk;
            let own = if gvk.group.is_empty() {
                format!("api/{}", gvk.version)
            } else {
                format!("apis/{}/{}", gvk.group, gvk.version)
            };
            assert_eq!(can_patch(&document, gvk), own == *path, "{gvk:?} {path}");
        }
    }
    check_references(&read(&chain, "/openapi/v2").await);
}

/// Names of shared parameters end with a hash of their content, so these have Kubernetes' own descriptions.
const SHARED: [&str; 12] = [
    "allowWatchBookmarks-HC2hJt-J",
    "body-2Y1dVQaQ",
    "body-78PwaGsr",
    "container-1GeXxFDC",
    "container-i5dOmRiM",
    "continue-QfD61s0i",
    "fieldManager-7c6nTn1T",
    "fieldManager-Qy4HdaTW",
    "limit-1NfNmdNH",
    "namespace-vgWSWtn3",
    "path-QCf0eosM",
    "pretty-tJGM1-ng",
];

#[tokio::test]
async fn parameters_are_described_and_shared_as_by_kubernetes() {
    let (_, chain) = server().await;
    let v2 = read(&chain, "/openapi/v2").await;
    let shared = v2["parameters"].as_object().unwrap();
    for name in SHARED {
        assert!(shared.contains_key(name), "{name}: {:?}", shared.keys().collect::<Vec<_>>());
    }
    let pod = &v2["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"];
    let list = |place: &Value| place["parameters"].as_array().unwrap().clone();
    assert!(list(pod).contains(&json!({"$ref": "#/parameters/pretty-tJGM1-ng"})), "{pod}");
    // By these two kubectl decides what to leave to the server.
    let names: Vec<Value> = list(&pod["patch"]).iter().map(|parameter| parameter["name"].clone()).collect();
    assert!(names.contains(&json!("dryRun")) && names.contains(&json!("fieldValidation")), "{names:?}");
    assert_eq!(pod["get"]["description"], "read the specified Pod");
    let described = |path: &str, method: &str| v2["paths"][path][method]["description"].clone();
    let pods = "/api/v1/namespaces/{namespace}/pods";
    for (path, method, text) in [
        (pods.to_owned(), "get", "list or watch objects of kind Pod"),
        (pods.to_owned(), "post", "create a Pod"),
        (pods.to_owned(), "delete", "delete collection of Pod"),
        (pods.replace("pods", "endpoints"), "post", "create Endpoints"),
        (format!("{pods}/{{name}}/eviction"), "post", "create eviction of a Pod"),
        (format!("{pods}/{{name}}/exec"), "get", "connect GET requests to exec of Pod"),
        (format!("{pods}/{{name}}/proxy/{{path}}"), "options", "connect OPTIONS requests to proxy of Pod"),
        (
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale".to_owned(),
            "put",
            "replace scale of the specified Deployment",
        ),
        ("/api/v1/componentstatuses".to_owned(), "get", "list objects of kind ComponentStatus"),
        ("/apis/apps/v1/".to_owned(), "get", "get available resources"),
    ] {
        assert_eq!(described(&path, method), text, "{method} {path}");
    }
    let v3 = read(&chain, "/openapi/v3/apis/apps/v1").await;
    let scale = &v3["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"];
    let name = scale["parameters"].as_array().unwrap().iter().find(|one| one["name"] == "name").unwrap();
    assert_eq!(name["description"], "name of the Scale");
}

#[tokio::test]
async fn schemas_have_the_extensions_that_kubectl_reads() {
    let (_, chain) = server().await;
    let document = read(&chain, "/openapi/v3/api/v1").await;
    let schemas = &document["components"]["schemas"];
    let pod = &schemas["io.k8s.api.core.v1.Pod"];
    assert_eq!(
        pod["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
    let metadata = &pod["properties"]["metadata"];
    assert_eq!(
        metadata["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert_eq!(metadata["default"], json!({}));
    assert!(containers["description"].is_string());
    let policy = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["restartPolicy"];
    assert_eq!(policy["enum"], json!(["Always", "Never", "OnFailure"]));
    assert!(policy["description"].as_str().unwrap().contains("Possible enum values:"), "{policy}");
    let modes = &schemas["io.k8s.api.core.v1.PersistentVolumeSpec"]["properties"]["accessModes"]["items"];
    assert_eq!(modes["enum"][0], "ReadOnlyMany");
}

#[tokio::test]
async fn document_with_hash_is_immutable() {
    let (_, chain) = server().await;
    let index = read(&chain, "/openapi/v3").await;
    let url = index["paths"]["apis/batch/v1"]["serverRelativeURL"].as_str().unwrap();
    let response = get(&chain, url, &[]).await;
    assert_eq!(response.headers()[header::CACHE_CONTROL], "public, immutable");
    assert!(response.headers().contains_key(header::EXPIRES));
    let tag = response.headers()[header::ETAG].to_str().unwrap().to_owned();
    let again = get(&chain, "/openapi/v3/apis/batch/v1", &[(header::IF_NONE_MATCH, &tag)]).await;
    assert_eq!(again.status(), 304);
    let wrong = get(&chain, "/openapi/v3/apis/batch/v1?hash=00", &[]).await;
    assert_eq!((wrong.status().as_u16(), wrong.headers()[header::LOCATION].to_str().unwrap()), (301, url));
    let compressed = get(&chain, url, &[(header::ACCEPT_ENCODING, "gzip")]).await;
    assert_eq!(compressed.headers()[header::CONTENT_ENCODING], "gzip");
    let refused = get(&chain, url, &[(header::ACCEPT, "application/xml")]).await;
    assert_eq!(refused.status(), 406);
    assert_eq!(get(&chain, "/openapi/v3/apis/nothing/v1", &[]).await.status(), 404);
}

fn widgets() -> Kind {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "default": 3}, "any": {"x-kubernetes-preserve-unknown-fields": true}}}}});
    let gvk = GroupVersionKind::new("stable.example.com", "v1", "Widget");
    Kind {
        storage: Storage::own(&gvk),
        gvk,
        list_kind: "WidgetList".into(),
        resource: "widgets".into(),
        singular: "widget".into(),
        namespaced: true,
        verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            .map(str::to_owned)
            .into(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
        schema: KindSchema::Owned(Arc::new(from_openapi(&schema))),
        name_rule: NameRule::Subdomain,
        flags: StrategyFlags::CUSTOM,
        selectable_fields: Vec::new(),
        immortal_names: &[],
        update_scopes: &[],
        columns: StaticOrBoxed::Static(&DEFAULT_COLUMNS),
        strategy: StaticOrBoxed::Static(&DefaultStrategy),
        retirement: Retirement::default(),
    }
}

#[tokio::test]
async fn openapi_follows_the_registry() {
    let (cluster, chain) = server().await;
    let path = "/openapi/v3/apis/stable.example.com/v1";
    assert_eq!(get(&chain, path, &[]).await.status(), 404);
    cluster.objects.registry.change(|kinds| kinds.insert(widgets()));
    let document = read(&chain, path).await;
    check_references(&document);
    let widget = &document["components"]["schemas"]["com.example.stable.v1.Widget"];
    assert_eq!(widget["properties"]["spec"]["properties"]["size"]["default"], 3);
    assert!(can_patch(&document, &GroupVersionKind::new("stable.example.com", "v1", "Widget")));
    let all = read(&chain, "/openapi/v2").await;
    let widget = &all["definitions"]["com.example.stable.v1.Widget"];
    assert_eq!(widget["properties"]["spec"]["properties"]["size"], json!({"type": "integer"}));
    cluster.objects.registry.change(|kinds| kinds.remove("stable.example.com", "v1", "widgets"));
    assert_eq!(get(&chain, path, &[]).await.status(), 404);
    assert!(read(&chain, "/openapi/v2").await["definitions"].get("com.example.stable.v1.Widget").is_none());
}

#[tokio::test]
async fn openapi_v2_is_served_in_protobuf() {
    let (_, chain) = server().await;
    // The spelling of helm and older Go clients.
    let asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let response = get(&chain, "/openapi/v2", &[(header::ACCEPT, asked)]).await;
    assert_eq!(response.status(), 200);
    let answered = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    assert_eq!(response.headers()[header::CONTENT_TYPE], answered);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"\x0a\x032.0"), "{:?}", &body[..16]);
    let holds = |text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("io.k8s.api.apps.v1.Deployment") && holds("x-kubernetes-group-version-kind"));
    let refused = get(&chain, "/openapi/v3/api/v1", &[(header::ACCEPT, asked)]).await;
    assert_eq!(refused.status(), 406);
}
