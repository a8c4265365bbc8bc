//! Content negotiation.

use orlop_server::chain::Chain;
use serde_json::{Value, json};

use crate::{
    MAPS, define_gizmos,
    support::{ask, config_map, create, server, whole},
};

const GIZMOS: &str = "/apis/example.com/v1/namespaces/default/gizmos";
const ALL: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Requests an unsupported media type. Returns the message, and true if there are details.
async fn unacceptable(chain: &Chain, method: &str, path: &str, accept: &str) -> (String, bool) {
    let (code, headers, body) = whole(ask(chain, method, path, &[("accept", accept)], "").await).await;
    let status = match headers["content-type"].to_str().unwrap() {
        "application/vnd.kubernetes.protobuf" => orlop_api::protobuf::decode(&body).unwrap(),
        _ => orlop_api::decode::yaml_or_json(&body).unwrap().value,
    };
    assert_eq!((code, &status["reason"]), (406, &json!("NotAcceptable")), "{path} as {accept}: {status}");
    (status["message"].as_str().unwrap().to_owned(), status.get("details").is_some())
}

#[tokio::test]
async fn not_acceptable_lists_offered_media_types() {
    let (chain, _store) = server().await;
    define_gizmos(&chain).await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let routed = |list: &str| format!("406: Not Acceptable\n\nAvailable representations: {list}");
    let negotiated = |list: &str| format!("only the following media types are accepted: {list}");
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let (item, watch) = (format!("{MAPS}/a"), format!("{MAPS}?watch=true"));
    let log = "/api/v1/namespaces/default/pods/p/log";
    let table = "application/yaml;as=Table;v=v1;g=meta.k8s.io";
    let strange = "application/json;as=Zork;v=v1;g=meta.k8s.io";
    for (method, path, accept, expected) in [
        ("GET", MAPS, "text/html", routed(&format!("{ALL}, {streams}"))),
        ("GET", &watch, "text/html", routed(&format!("{ALL}, {streams}"))),
        ("GET", &item, "text/html", routed(ALL)),
        ("GET", &item, "application/cbor, text/*", routed(ALL)),
        ("DELETE", &item, "text/html", routed(ALL)),
        ("GET", log, "text/html", routed(&format!("text/plain, {ALL}"))),
        ("GET", "/api", "text/html", routed(ALL)),
        ("GET", "/apis/apps/v1", "text/html", routed(ALL)),
        ("GET", "/version", "application/yaml", routed("application/json")),
        // An unsupported transform of a supported media type is not the router's error.
        ("GET", &item, strange, negotiated(ALL)),
        ("GET", MAPS, "application/json;as=Table;v=v2;g=meta.k8s.io", negotiated(ALL)),
        ("GET", &watch, table, negotiated(streams)),
        // Custom resources and groups have no router.
        ("GET", GIZMOS, "text/html", negotiated(ALL)),
        ("GET", GIZMOS, "application/vnd.kubernetes.protobuf", negotiated(ALL)),
        ("GET", "/apis", "text/html", negotiated(ALL)),
        ("GET", "/apis/apps", "text/html", negotiated(ALL)),
        ("GET", "/apis/example.com/v1", "text/html", negotiated(ALL)),
    ] {
        let (message, has_details) = unacceptable(&chain, method, path, accept).await;
        assert_eq!(
            (message.as_str(), has_details),
            (expected.as_str(), message.starts_with("406")),
            "{path}"
        );
    }
    assert_eq!(ask(&chain, "GET", "/openapi/v3", &[("accept", "text/html")], "").await.status(), 200);
}

#[tokio::test]
async fn unsupported_media_type_lists_supported_ones() {
    let (chain, _store) = server().await;
    define_gizmos(&chain).await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let expected =
        format!("the body of the request was in an unknown format - accepted media types include: {ALL}");
    let item = format!("{MAPS}/a");
    for (method, path) in [("POST", MAPS), ("PUT", &item), ("DELETE", &item), ("POST", GIZMOS)] {
        for media_type in ["text/plain", "application/cbor", "application/merge-patch+json"] {
            let headers = [("content-type", media_type)];
            let (code, _, body) = whole(ask(&chain, method, path, &headers, "{}").await).await;
            let status: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((code, status["message"].as_str()), (415, Some(expected.as_str())), "{method} {path}");
        }
    }
    let headers = [("content-type", "application/vnd.kubernetes.protobuf")];
    let (code, _, body) = whole(ask(&chain, "POST", MAPS, &headers, "{}").await).await;
    let status: Value = serde_json::from_slice(&body).unwrap();
    let message = "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to \
        be a protobuf message, expected prefix [107 56 115 0] ({})";
    assert_eq!((code, status["message"].as_str()), (400, Some(message)));
}

#[tokio::test]
async fn discovery_is_served_in_protobuf() {
    let (chain, _store) = server().await;
    for path in ["/api", "/apis", "/apis/apps", "/apis/apps/v1"] {
        let accept = [("accept", "application/vnd.kubernetes.protobuf")];
        let (code, headers, body) = whole(ask(&chain, "GET", path, &accept, "").await).await;
        assert_eq!((code, headers["content-type"].to_str().unwrap()), (200, accept[0].1), "{path}");
        let (_, _, json) = whole(ask(&chain, "GET", path, &[], "").await).await;
        let expected: Value = serde_json::from_slice(&json).unwrap();
        let read = orlop_api::protobuf::decode(&body).unwrap();
        for field in ["kind", "groupVersion", "name", "versions"] {
            assert_eq!(read.get(field), expected.get(field), "{field} of {path}");
        }
        let of_resource = |document: &Value| document.pointer("/resources/0/verbs").cloned();
        assert_eq!(of_resource(&read), of_resource(&expected), "{path}");
    }
}
