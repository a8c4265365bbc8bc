//! Malformed patches, patches of missing objects, apply.

use orlop_server::chain::Chain;
use serde_json::{Value, json};

use crate::{
    MAPS, define_gizmos,
    support::{ask, call, config_map, create, get, server, whole},
};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const GIZMOS: &str = "/apis/example.com/v1/namespaces/default/gizmos";

async fn patched(chain: &Chain, path: &str, media_type: &str, body: &str) -> (u16, Value) {
    let headers = [("content-type", media_type)];
    let (code, _, answer) = whole(ask(chain, "PATCH", path, &headers, body.to_owned()).await).await;
    (code, serde_json::from_slice(&answer).unwrap())
}

/// Starts a server with a ConfigMap and a Gizmo named `a`.
async fn with_objects() -> Chain {
    let (chain, _store) = server().await;
    let mut map = config_map("a", &json!({}));
    map["data"] = json!({"a": "b"});
    create(&chain, MAPS, &map).await;
    define_gizmos(&chain).await;
    let gizmo = json!({"apiVersion": "example.com/v1", "kind": "Gizmo", "metadata": {"name": "a"},
        "spec": {"replicas": 1}});
    create(&chain, GIZMOS, &gizmo).await;
    chain
}

#[tokio::test]
async fn missing_object_is_reported_before_patch_errors() {
    let chain = with_objects().await;
    for media_type in [JSON, MERGE, STRATEGIC] {
        for body in ["", "{", "null", "1", "[1]", "{\"kind\": 1}"] {
            let (code, status) = patched(&chain, &format!("{MAPS}/none"), media_type, body).await;
            assert_eq!((code, &status["message"]), (404, &json!("configmaps \"none\" not found")), "{body}");
        }
    }
    let (code, status) = patched(&chain, &format!("{GIZMOS}/none"), MERGE, "[").await;
    assert_eq!((code, &status["message"]), (404, &json!("gizmos.example.com \"none\" not found")));
    let path = "/apis/apps/v1/namespaces/default/deployments/none";
    for endpoint in ["scale", "status"] {
        for media_type in [MERGE, APPLY] {
            let path = format!("{path}/{endpoint}?fieldManager=m");
            let (code, status) = patched(&chain, &path, media_type, "[]").await;
            assert_eq!(code, 404, "{endpoint} {status}");
        }
    }
    // An unreadable patch is reported first.
    let (code, status) = patched(&chain, &format!("{MAPS}/none"), "text/plain", "").await;
    assert_eq!((code, &status["details"]), (415, &json!({})), "{status}");
    let (code, status) = patched(&chain, &format!("{GIZMOS}/none"), STRATEGIC, "{}").await;
    let accepted = "the body of the request was in an unknown format - accepted media types include: \
        application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    assert_eq!((code, status["message"].as_str(), status.get("details")), (415, Some(accepted), None));
}

#[tokio::test]
async fn malformed_patch_errors_match_go() {
    let chain = with_objects().await;
    let map = "Go value of type map[string]interface {}";
    let operations = "error decoding patch: json: cannot unmarshal";
    let rejected = "the server rejected our request due to an error in our request".to_owned();
    let cases = [
        (JSON, "", "", 400, "invalid JSON patch".into()),
        (JSON, "", "nope", 400, "invalid JSON patch".into()),
        (JSON, "", "{}", 400, format!("{operations} object into Go value of type []handlers.jsonPatchOp")),
        (
            JSON,
            "Ignore",
            "{}",
            400,
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch".into(),
        ),
        (JSON, "", "[1]", 400, format!("{operations} number into Go value of type handlers.jsonPatchOp")),
        (
            JSON,
            "Ignore",
            "[1]",
            400,
            "json: cannot unmarshal number into Go value of type jsonpatch.Operation".into(),
        ),
        (JSON, "", "[null]", 422, rejected.clone()),
        (JSON, "", "[{\"op\":\"copy\",\"from\":\"/no/x\",\"path\":\"/data/y\"}]", 422, rejected),
        (MERGE, "", "null", 400, "Invalid JSON Patch".into()),
        (MERGE, "", "\"x\"", 400, format!("error decoding patch: json: cannot unmarshal string into {map}")),
        (MERGE, "", "[]", 400, format!("error decoding patch: json: cannot unmarshal array into {map}")),
        (MERGE, "Ignore", "{", 400, "invalid JSON patch".into()),
        (STRATEGIC, "", "[]", 400, format!("json: cannot unmarshal array into {map}")),
        (STRATEGIC, "", "true", 400, format!("json: cannot unmarshal bool into {map}")),
        (STRATEGIC, "", "{", 400, "invalid JSON patch".into()),
    ];
    for (media_type, validation, body, code, message) in cases {
        for path in [format!("{MAPS}/a"), format!("{GIZMOS}/a")] {
            if media_type == STRATEGIC && path.starts_with(GIZMOS) {
                continue;
            }
            let path = format!("{path}?fieldValidation={validation}");
            let (answered, status) = patched(&chain, &path, media_type, body).await;
            assert_eq!(
                (answered, status["message"].as_str()),
                (code, Some(message.as_str())),
                "{media_type} {path} {body}"
            );
        }
    }
    // A list replaces the object, and is refused.
    let no_object = "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type \
        struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
    for (media_type, body) in [(MERGE, "[]"), (JSON, "[{\"op\":\"replace\",\"path\":\"\",\"value\":[]}]")] {
        let (code, status) =
            patched(&chain, &format!("{MAPS}/a?fieldValidation=Ignore"), media_type, body).await;
        let message = format!(" \"\" is invalid: patch: Invalid value: \"[]\": {no_object}");
        assert_eq!((code, status["message"].as_str()), (422, Some(message.as_str())));
    }
    // No-ops.
    for (media_type, body) in [
        (STRATEGIC, "null"),
        (JSON, "null"),
        (JSON, "[]"),
        (JSON, "[{\"op\":\"replace\",\"path\":\"\",\"value\":1}]"),
        (MERGE, "{\"metadata\":{\"namespace\":null}}"),
    ] {
        let (code, object) = patched(&chain, &format!("{MAPS}/a"), media_type, body).await;
        assert_eq!((code, &object["data"]), (200, &json!({"a": "b"})), "{media_type} {body} {object}");
    }
    let copy = "[{\"op\":\"copy\",\"from\":\"/data/none\",\"path\":\"/data/y\"}]";
    let (code, object) = patched(&chain, &format!("{MAPS}/a?dryRun=All"), JSON, copy).await;
    assert_eq!(
        (code, &object["data"]),
        (200, &json!({"a": "b", "y": ""})),
        "what is not there is copied as null"
    );
}

#[tokio::test]
async fn type_errors_of_strategic_merge_patches_match_kubernetes() {
    let chain = with_objects().await;
    for (body, quoted, why) in [
        (
            "{\"metadata\":{\"labels\":\"x\"}}",
            "map[metadata:map[labels:x]]",
            "cannot restore map from string",
        ),
        ("{\"metadata\":[1]}", "map[metadata:[1]]", "cannot restore struct from: slice"),
        ("{\"data\":[]}", "map[data:[]]", "cannot restore map from slice"),
        ("{\"data\":{\"a\":1}}", "map[data:map[a:1]]", "cannot convert int64 to string"),
        ("{\"data\":{\"a\":1.5}}", "map[data:map[a:1.5]]", "unrecognized type: string"),
        ("{\"immutable\":\"yes\"}", "map[immutable:yes]", "unrecognized type: bool"),
        ("{\"kind\":[]}", "map[kind:[]]", "unrecognized type: string"),
    ] {
        let (code, status) = patched(&chain, &format!("{MAPS}/a"), STRATEGIC, body).await;
        let message = format!(" \"\" is invalid: patch: Invalid value: \"{quoted}\": {why}");
        assert_eq!(
            (code, &status["reason"], &status["message"]),
            (422, &json!("Invalid"), &json!(message)),
            "{body}"
        );
        let cause = &status["details"]["causes"][0];
        assert_eq!(cause["message"], json!(format!("Invalid value: \"{quoted}\": {why}")));
    }
}

#[tokio::test]
async fn patch_cannot_change_the_kind() {
    let chain = with_objects().await;
    let (map, gizmo) = (format!("{MAPS}/a?dryRun=All"), format!("{GIZMOS}/a?dryRun=All"));
    let scheme = "in scheme \"pkg/runtime/scheme.go:110\"";
    for (body, code, ending) in [
        ("{\"kind\":\"Zork\"}", 422, format!("no kind \"Zork\" is registered for version \"v1\" {scheme}")),
        (
            "{\"apiVersion\":\"apps/v1\"}",
            422,
            format!("no kind \"ConfigMap\" is registered for version \"apps/v1\" {scheme}"),
        ),
        (
            "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\"}",
            422,
            "converting (v1.Deployment) to (core.ConfigMap): unknown conversion".to_owned(),
        ),
        ("{\"apiVersion\":\"a/b/c\"}", 422, "unexpected GroupVersion string: a/b/c".to_owned()),
        (
            "{\"kind\":1}",
            422,
            "json: cannot unmarshal number into Go struct field .kind of type string".to_owned(),
        ),
        (
            "{\"metadata\":1}",
            422,
            "json: cannot unmarshal number into Go struct field ConfigMap.metadata of type v1.ObjectMeta"
                .to_owned(),
        ),
        (
            "{\"apiVersion\":null}",
            400,
            "the name of the object (a based on URL) was undeterminable: name must be provided".to_owned(),
        ),
        (
            "{\"metadata\":{\"name\":null}}",
            400,
            "the name of the object (a based on URL) was undeterminable: name must be provided".to_owned(),
        ),
        (
            "{\"metadata\":{\"namespace\":\"other\"}}",
            400,
            "the namespace of the provided object does not match the namespace sent on the request"
                .to_owned(),
        ),
    ] {
        let (answered, status) = patched(&chain, &map, MERGE, body).await;
        let message = status["message"].as_str().unwrap_or_default();
        assert!(answered == code && message.ends_with(&ending), "{body}: {answered} {message}");
    }
    // An omitted kind is carried over; a strategic merge keeps the kind.
    for (media_type, body) in [
        (MERGE, "{\"kind\":null}"),
        (MERGE, "{\"kind\":\"\"}"),
        (STRATEGIC, "{\"kind\":\"Zork\"}"),
        (STRATEGIC, "{\"apiVersion\":\"v2\"}"),
    ] {
        let (code, object) = patched(&chain, &map, media_type, body).await;
        assert_eq!((code, &object["kind"], &object["apiVersion"]), (200, &json!("ConfigMap"), &json!("v1")));
    }
    for (body, message) in [
        (
            "{\"kind\":\"Zork\"}",
            "Zork.example.com \"a\" is invalid: kind: Invalid value: \"Zork\": must be Gizmo",
        ),
        (
            "{\"kind\":\"Secret\",\"apiVersion\":\"v1\"}",
            "Secret \"a\" is invalid: [kind: Invalid value: \"Secret\": must be Gizmo, apiVersion: Invalid value: \
             \"v1\": must be example.com/v1]",
        ),
        (
            "{\"metadata\":{\"resourceVersion\":null}}",
            "gizmos.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for \
             an update",
        ),
    ] {
        let (code, status) = patched(&chain, &gizmo, MERGE, body).await;
        assert_eq!((code, status["message"].as_str()), (422, Some(message)), "{body}");
    }
    for (body, ending) in [
        ("{\"kind\":null}", "'"),
        ("{\"metadata\":[]}", "json: cannot unmarshal array into Go value of type v1.ObjectMeta"),
        (
            "{\"metadata\":{\"labels\":1}}",
            "\": json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string",
        ),
    ] {
        let (code, status) = patched(&chain, &gizmo, MERGE, body).await;
        let message = status["message"].as_str().unwrap_or_default();
        let begins = " \"\" is invalid: patch: Invalid value: \"{\\\"apiVersion\\\":\\\"example.com/v1\\\"";
        assert!(code == 422 && message.starts_with(begins) && message.ends_with(ending), "{body}: {message}");
    }
    // Custom objects reset managed fields by a list of one empty entry, built-in ones by an empty list.
    for (path, list, left) in [(&gizmo, "[]", true), (&gizmo, "[{}]", false), (&map, "[]", false)] {
        let body = format!("{{\"metadata\":{{\"managedFields\":{list}}}}}");
        let (_, object) = patched(&chain, path, MERGE, &body).await;
        assert_eq!(object["metadata"]["managedFields"].is_array(), left, "{list} {object}");
    }
}

#[tokio::test]
async fn applied_configuration_must_name_its_kind() {
    let chain = with_objects().await;
    let unnamed = "the name of the object (new based on URL) was undeterminable: name must be provided";
    let other = "the namespace of the provided object does not match the namespace sent on the request";
    for (collection, version, kind) in [(MAPS, "v1", "ConfigMap"), (GIZMOS, "example.com/v1", "Gizmo")] {
        let body = |rest: Value| {
            let mut body = json!({"apiVersion": version, "kind": kind});
            body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            body.to_string()
        };
        let group = if version == "v1" { "/v1".to_owned() } else { version.to_owned() };
        let typed = |of: &str, why: &str| {
            format!("failed to create typed patch object ({of}; {group}, Kind={kind}): {why}")
        };
        for (name, rest, code, message) in [
            ("new", json!({}), 400, unnamed.to_owned()),
            ("new", json!({"metadata": {"generateName": "x-"}}), 400, unnamed.to_owned()),
            ("a", json!({}), 200, String::new()),
            (
                "new",
                json!({"metadata": {"name": "x"}}),
                400,
                "the name of the object (x) does not match the name on the URL (new)".to_owned(),
            ),
            (
                "a",
                json!({"metadata": {"name": "x"}}),
                400,
                "the name of the object (x) does not match the name on the URL (a)".to_owned(),
            ),
            ("a", json!({"metadata": {"name": "a", "namespace": "other"}}), 400, other.to_owned()),
            ("new", json!({"metadata": {"name": "new", "namespace": "other"}}), 400, other.to_owned()),
            (
                "a",
                json!({"metadata": {"name": "a"}, "kind": "Zork"}),
                400,
                format!("invalid object type: {group}, Kind=Zork"),
            ),
            (
                "a",
                json!({"metadata": {"name": "x"}, "apiVersion": "a/b/c"}),
                400,
                "invalid object type: /, Kind=".to_owned(),
            ),
            ("a", json!({"metadata": 1}), 500, typed("/", ".metadata: expected map, got &{1}")),
            (
                "new",
                json!({"metadata": {"name": "new"}, "zork": 1}),
                500,
                typed("/new", ".zork: field not declared in schema"),
            ),
            (
                "a",
                json!({"metadata": {"name": "a", "labels": 1}}),
                500,
                typed("/a", ".metadata.labels: expected map, got &{1}"),
            ),
            ("new", json!({"metadata": {"name": "new", "resourceVersion": "5"}}), 201, String::new()),
        ] {
            let path = format!("{collection}/{name}?fieldManager=m&dryRun=All");
            let (answered, status) = patched(&chain, &path, APPLY, &body(rest.clone())).await;
            let said = status["message"].as_str().unwrap_or_default();
            assert_eq!((answered, said), (code, message.as_str()), "{name} {rest}");
        }
    }
    // The first of several YAML documents is applied.
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: first\n---\na: b\n";
    let (code, _) = patched(&chain, &format!("{MAPS}/first?fieldManager=m"), APPLY, yaml).await;
    assert_eq!((code, get(&chain, &format!("{MAPS}/first")).await.0), (201, 200));
}

#[tokio::test]
async fn create_on_update_refuses_a_uid() {
    let (chain, _store) = server().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = |field: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", field: "5"}});
    let (code, status) = call(&chain, "PUT", leases, Some(&lease("uid"))).await;
    let ending = "Precondition failed: UID in precondition: 5, UID in object meta: ";
    assert!(code == 409 && status["message"].as_str().unwrap().ends_with(ending), "{status}");
    let (code, created) = call(&chain, "PUT", leases, Some(&lease("resourceVersion"))).await;
    assert!(code == 201 && created["metadata"]["resourceVersion"] != "5", "{created}");
}
