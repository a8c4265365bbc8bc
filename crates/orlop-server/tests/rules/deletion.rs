//! Delete and deletecollection: options and responses.

use serde_json::{Value, json};

use crate::{
    MAPS, refused,
    support::{ask, call, config_map, create, get, server, version, whole},
};

#[tokio::test]
async fn malformed_delete_options_delete_nothing() {
    let (chain, _store) = server().await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let path = format!("{MAPS}/a");
    let options = |more: Value| {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        options
    };
    let unsupported = "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Zork\"]: supported values: \"All\"";
    refused(&chain, "DELETE", &path, Some(&options(json!({"dryRun": ["Zork"]}))), 422, unsupported).await;
    refused(&chain, "DELETE", &format!("{path}?dryRun=Zork"), None, 422, unsupported).await;
    for (body, media_type, code) in [
        ("[]", "application/json", 400),
        ("zork", "application/json", 400),
        ("- a", "application/yaml", 400),
        ("{}", "text/plain", 415),
    ] {
        let headers = [("content-type", media_type)];
        let (answered, _, _) = whole(ask(&chain, "DELETE", &path, &headers, body).await).await;
        assert_eq!(answered, code, "{body} as {media_type}");
    }
    assert_eq!(get(&chain, &path).await.0, 200);
    assert_eq!(call(&chain, "DELETE", &path, Some(&options(json!({"dryRun": ["All"]})))).await.0, 200);
    assert_eq!(get(&chain, &path).await.0, 200, "a dry run deletes nothing");
    let headers = [("content-type", "application/yaml")];
    let body = "kind: DeleteOptions\napiVersion: v1\n";
    assert_eq!(ask(&chain, "DELETE", &path, &headers, body).await.status(), 200);
    assert_eq!(get(&chain, &path).await.0, 404);
}

#[tokio::test]
async fn delete_returns_the_object_or_a_status_by_strategy() {
    let (chain, _store) = server().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "x"}});
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "x"},
        "provisioner": "example.com/p"});
    for (collection, object) in [
        ("/api/v1/namespaces/default/pods", &pod),
        ("/api/v1/namespaces/default/serviceaccounts", &account),
        ("/apis/storage.k8s.io/v1/storageclasses", &class),
    ] {
        create(&chain, collection, object).await;
        for query in ["?dryRun=All", ""] {
            let (code, deleted) = call(&chain, "DELETE", &format!("{collection}/x{query}"), None).await;
            assert_eq!((code, &deleted["kind"]), (200, &object["kind"]), "{deleted}");
            // Only pods have a grace period.
            let grace = deleted["metadata"].get("deletionGracePeriodSeconds");
            assert_eq!(grace, (object["kind"] == "Pod").then_some(&json!(0)), "{deleted}");
        }
        assert_eq!(get(&chain, &format!("{collection}/x")).await.0, 404);
    }
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let (_, status) = call(&chain, "DELETE", &format!("{MAPS}/a"), None).await;
    assert_eq!(
        (status["kind"].as_str(), status["status"].as_str(), status["details"]["kind"].as_str()),
        (Some("Status"), Some("Success"), Some("configmaps"))
    );
}

#[tokio::test]
async fn deleting_a_job_warns_of_orphaned_pods() {
    let (chain, _store) = server().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": template}});
    create(&chain, jobs, &job).await;
    let warned = |query: &str| {
        let (chain, path) = (chain.clone(), format!("{jobs}/j?dryRun=All{query}"));
        async move { whole(ask(&chain, "DELETE", &path, &[], "").await).await.1.contains_key("warning") }
    };
    assert!(warned("").await);
    assert!(!warned("&propagationPolicy=Orphan").await && !warned("&orphanDependents=false").await);
}

/// Returns the names of a list's items.
fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn deletecollection_honours_selectors() {
    let (chain, _store) = server().await;
    for (name, label) in [("a", "1"), ("b", "1"), ("c", "2"), ("held", "1")] {
        let mut map = config_map(name, &json!({"l": label}));
        if name == "held" {
            map["metadata"]["finalizers"] = json!(["example.com/x"]);
        }
        create(&chain, MAPS, &map).await;
    }
    for refused in ["labelSelector=a=b=c", "fieldSelector=zork=1", "propagationPolicy=Later"] {
        let (code, status) = call(&chain, "DELETE", &format!("{MAPS}?{refused}"), None).await;
        assert!(matches!(code, 400 | 422), "{status}");
    }
    let (code, deleted) = call(&chain, "DELETE", &format!("{MAPS}?labelSelector=l=1&dryRun=All"), None).await;
    assert_eq!((code, names(&deleted)), (200, vec!["a".to_owned(), "b".into(), "held".into()]));
    let (_, deleted) = call(&chain, "DELETE", &format!("{MAPS}?fieldSelector=metadata.name=b"), None).await;
    assert_eq!((&deleted["kind"], names(&deleted)), (&json!("ConfigMapList"), vec!["b".to_owned()]));
    call(&chain, "DELETE", &format!("{MAPS}?labelSelector=l=1"), None).await;
    let (_, left) = get(&chain, MAPS).await;
    assert_eq!(names(&left), ["c", "held"], "what is held back stays and waits");
    assert!(left["items"][1]["metadata"]["deletionTimestamp"].is_string());
    // orphanDependents=false answers 202.
    let path = format!("{MAPS}/held?orphanDependents=false");
    assert_eq!(call(&chain, "DELETE", &path, None).await.0, 202);
}

#[tokio::test]
async fn delete_preconditions_are_read_from_the_query() {
    let (chain, _store) = server().await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let item = format!("{MAPS}/a");
    let (_, object) = get(&chain, &item).await;
    let (uid, version) = (object["metadata"]["uid"].as_str().unwrap(), version(&object));
    for (query, what, given, found) in
        [("uid", "UID", "z", uid), ("resourceVersion", "ResourceVersion", "1", version.as_str())]
    {
        let why = if what == "UID" { "deleted and then recreated" } else { "modified" };
        let message = format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the {what} in the precondition ({given}) does not match \
             the {what} in record ({found}). The object might have been {why}"
        );
        refused(&chain, "DELETE", &format!("{item}?{query}={given}"), None, 409, &message).await;
        if query == "uid" {
            refused(&chain, "DELETE", &format!("{MAPS}?{query}={given}"), None, 409, &message).await;
        }
    }
    let path = format!("{item}?uid={uid}&resourceVersion={version}");
    assert_eq!(call(&chain, "DELETE", &path, None).await.0, 200);
}

#[tokio::test]
async fn deletecollection_honours_limit_and_continue() {
    let (chain, _store) = server().await;
    for index in 0..7 {
        create(&chain, MAPS, &config_map(&format!("m{index}"), &json!({"l": "1"}))).await;
    }
    let (_, first) = call(&chain, "DELETE", &format!("{MAPS}?limit=3"), None).await;
    assert_eq!(names(&first), ["m0", "m1", "m2"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 4);
    let token = first["metadata"]["continue"].as_str().unwrap();
    assert_eq!(names(&get(&chain, MAPS).await.1), ["m3", "m4", "m5", "m6"]);
    create(&chain, MAPS, &config_map("m3x", &json!({}))).await;
    let path = format!("{MAPS}?limit=3&continue={token}&labelSelector=l=1");
    let (_, second) = call(&chain, "DELETE", &path, None).await;
    assert_eq!(names(&second), ["m3", "m4", "m5"], "what came since is of another moment");
    assert_eq!(names(&get(&chain, MAPS).await.1), ["m3x", "m6"]);
    // The response is in the negotiated encoding.
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for (accept, kind, items) in [(table, "Table", "rows"), (metadata, "PartialObjectMetadataList", "items")]
    {
        let path = format!("{MAPS}?dryRun=All");
        let (code, _, body) = whole(ask(&chain, "DELETE", &path, &[("accept", accept)], "").await).await;
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((code, &answer["kind"]), (200, &json!(kind)));
        assert_eq!(answer[items].as_array().unwrap().len(), 2, "{answer}");
    }
}

#[tokio::test]
async fn deletecollection_deletes_and_lists_many_objects() {
    const OBJECTS: usize = 3000;
    let (chain, _store) = server().await;
    let other = "/api/v1/namespaces/kube-system/configmaps";
    create(&chain, other, &config_map("stays", &json!({}))).await;
    // More than the held part of a response, and than one page of the store.
    let text = "x".repeat(2048);
    for accept in ["application/json", "application/vnd.kubernetes.protobuf"] {
        let made = (0..OBJECTS).map(|index| {
            let mut map = config_map(&format!("m{index:04}"), &json!({}));
            map["data"] = json!({"text": text});
            let chain = chain.clone();
            async move { create(&chain, MAPS, &map).await }
        });
        futures_util::future::join_all(made).await;
        let answer = ask(&chain, "DELETE", MAPS, &[("accept", accept)], "").await;
        let (code, headers, body) = whole(answer).await;
        assert_eq!((code, &headers["content-type"]), (200, &accept.parse().unwrap()));
        if accept == "application/json" {
            let list: Value = serde_json::from_slice(&body).unwrap();
            let listed = names(&list);
            assert_eq!((listed.len(), listed.last().unwrap().as_str()), (OBJECTS, "m2999"));
            assert_eq!(list["items"][7]["data"]["text"].as_str(), Some(text.as_str()));
        } else {
            let list = orlop_api::protobuf::decode(&body).unwrap();
            assert_eq!(names(&list).len(), OBJECTS);
        }
        assert_eq!(names(&get(&chain, MAPS).await.1), Vec::<String>::new());
    }
    assert!(names(&get(&chain, other).await.1).contains(&"stays".to_owned()));
}

#[tokio::test]
async fn graceful_delete_bumps_generation_and_records_propagation() {
    let (chain, _store) = server().await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1,
        "metadata": {"name": "p", "finalizers": ["example.com/f"]}});
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    create(&chain, classes, &class).await;
    let (_, marked) = call(&chain, "DELETE", &format!("{classes}/p"), None).await;
    assert_eq!(marked["metadata"]["generation"], 2, "{marked}");
    // Events have no dependents.
    let events = "/api/v1/namespaces/default/events";
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    for policy in ["Foreground", "Orphan"] {
        create(&chain, events, &event).await;
        let path = format!("{events}/e?propagationPolicy={policy}");
        let (_, status) = call(&chain, "DELETE", &path, None).await;
        assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")), "{status}");
    }
    // The propagation policy of a namespace is set by its first delete.
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "s"}});
    create(&chain, "/api/v1/namespaces", &space).await;
    call(&chain, "DELETE", "/api/v1/namespaces/s", None).await;
    let path = "/api/v1/namespaces/s?propagationPolicy=Foreground";
    let (_, marked) = call(&chain, "DELETE", path, None).await;
    assert_eq!(marked["metadata"].get("finalizers"), None, "{marked}");
}
