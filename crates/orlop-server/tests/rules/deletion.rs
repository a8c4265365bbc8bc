//! What a deletion may ask for, and what it answers.

use serde_json::{Value, json};

use crate::{
    MAPS, refused,
    support::{ask, call, config_map, create, get, server, whole},
};

#[tokio::test]
async fn options_that_are_none_delete_nothing() {
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
async fn some_kinds_are_shown_when_they_go_and_others_are_reported() {
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
            // Only pods are given time, if only none.
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
async fn whoever_deletes_a_job_is_warned_of_its_pods() {
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

#[tokio::test]
async fn what_is_selected_is_deleted_together() {
    let (chain, _store) = server().await;
    for (name, label) in [("a", "1"), ("b", "1"), ("c", "2"), ("held", "1")] {
        let mut map = config_map(name, &json!({"l": label}));
        if name == "held" {
            map["metadata"]["finalizers"] = json!(["example.com/x"]);
        }
        create(&chain, MAPS, &map).await;
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
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
    // The old way to say that dependents go too tells that the object is still there.
    let path = format!("{MAPS}/held?orphanDependents=false");
    assert_eq!(call(&chain, "DELETE", &path, None).await.0, 202);
}
