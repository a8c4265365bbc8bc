//! Definitions, manifests and the chart.

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use slate_operator::{
    api::{Collection, Server},
    manifests,
};

use crate::cluster::{Cluster, apply_strictly, operator_client};

#[tokio::test(flavor = "multi_thread")]
async fn schema_refuses_unknown_stores_and_foreign_servers() {
    let cluster = Cluster::start(&[]).await;
    let create = async |kind: &str, spec: serde_json::Value| {
        let resource = kube::api::ApiResource {
            group: "slate.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "slate.io/v1".to_owned(),
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
        };
        let object =
            json!({ "apiVersion": "slate.io/v1", "kind": kind, "metadata": { "name": "x" }, "spec": spec });
        let object: kube::api::DynamicObject = serde_json::from_value(object).expect("an object");
        let api: Api<kube::api::DynamicObject> =
            Api::namespaced_with(cluster.client.clone(), "acme", &resource);
        api.create(&PostParams::default(), &object).await
    };
    assert!(create("Server", json!({ "store": "redis" })).await.is_err());
    assert!(create("Server", json!({})).await.is_err());
    assert!(create("Server", json!({ "store": "memory", "storage": { "size": "1Gi" } })).await.is_err());
    assert!(create("Collection", json!({ "server": "other/main-db" })).await.is_err());
    assert!(create("Collection", json!({ "indexes": ["a"] })).await.is_err());
    assert!(create("Collection", json!({ "server": "main-db" })).await.is_ok());
    let elsewhere = json!({ "spec": { "server": "other-db" } });
    let collections = cluster.api::<Collection>();
    let moved = collections.patch("x", &PatchParams::default(), &Patch::Merge(&elsewhere)).await;
    let refused = moved.expect_err("refused").to_string();
    assert!(refused.contains("server is immutable"), "{refused}");
}

#[test]
fn printed_manifests_are_valid_and_grant_no_wildcards() {
    let all = manifests::all();
    let documents: Vec<serde_json::Value> =
        all.split("\n---\n").map(|text| serde_saphyr::from_str(text).expect("YAML")).collect();
    assert_eq!(documents.len(), 8);
    for document in &documents {
        assert!(document["kind"].is_string() && document["metadata"]["name"].is_string(), "{document}");
        for rule in document["rules"].as_array().into_iter().flatten() {
            assert!(!rule.to_string().contains("\"*\""), "{rule}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_is_forbidden_what_it_does_not_need() {
    let cluster = Cluster::start(&[]).await;
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    cluster.server_when("main-db", |server| server.status.is_some()).await;
    let client = operator_client(&cluster.server);
    let refused = |result: Result<(), kube::Error>| {
        let Err(kube::Error::Api(status)) = &result else { panic!("{result:?}") };
        assert_eq!(status.code, 403, "{}", status.message);
    };
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "acme");
    refused(secrets.list(&ListParams::default()).await.map(drop));
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "acme");
    refused(deployments.delete("main-db", &DeleteParams::default()).await.map(drop));
    let servers: Api<Server> = Api::namespaced(client, "acme");
    let edit = json!({ "spec": { "store": "rocks" } });
    refused(servers.patch("main-db", &PatchParams::default(), &Patch::Merge(&edit)).await.map(drop));
}

#[tokio::test(flavor = "multi_thread")]
async fn printed_and_plain_manifests_pass_strict_validation() {
    let server = orlop_test::Server::with_controllers(&[]).await.expect("an API server");
    let operator = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/operator.yaml");
    let plain = std::fs::read_to_string(operator).expect("a file");
    let all = manifests::all();
    for text in all.split("\n---\n").chain(plain.split("\n---\n")) {
        apply_strictly(&server.client(), &serde_saphyr::from_str(text).expect("YAML")).await;
    }
}

/// Reads a file of this crate.
fn read(path: &str) -> String {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(folder.join(path)).expect("a file")
}

fn yaml(text: &str) -> serde_json::Value {
    serde_saphyr::from_str(text).expect("YAML")
}

/// Renders a template of the chart with its own values. It knows the actions that the templates use, and no other.
fn render(template: &str) -> String {
    let values = yaml(&read("chart/values.yaml"));
    let mut text = read(&format!("chart/templates/{template}"));
    text = text.replace("{{ .Release.Namespace }}", "slate-system");
    text = text.replace("{{ toJson .Values.resources }}", &values["resources"].to_string());
    for name in ["image", "serverImage", "imagePullPolicy", "replicas"] {
        let quoted = values[name].to_string();
        text = text.replace(&format!("{{{{ .Values.{name} | quote }}}}"), &quoted);
        text = text.replace(&format!("{{{{ .Values.{name} }}}}"), quoted.trim_matches('"'));
    }
    assert!(!text.contains("{{"), "{text}");
    text
}

#[test]
fn chart_and_plain_manifests_agree() {
    assert_eq!(render("rbac.yaml"), manifests::RBAC);
    let mut chart = yaml(&render("deployment.yaml"));
    let plain = read("manifests/operator.yaml");
    let plain = yaml(plain.split("---\n").nth(1).expect("a Deployment"));
    let container = &mut chart["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container.as_object_mut().expect("a container").remove("imagePullPolicy"),
        Some(json!("IfNotPresent"))
    );
    assert_eq!(chart, plain);
}

/// The rules of `helm lint`, on the chart as rendered with its own values.
#[tokio::test(flavor = "multi_thread")]
async fn chart_passes_the_rules_of_helm_lint() {
    let chart = yaml(&read("chart/Chart.yaml"));
    assert_eq!(chart["apiVersion"], "v2");
    assert_eq!(chart["type"], "application");
    assert_eq!(chart["name"], "slate-operator");
    let version = chart["version"].as_str().expect("a version");
    assert_eq!(version.split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 3, "{version}");
    for field in ["description", "appVersion"] {
        assert!(chart[field].as_str().is_some_and(|text| !text.is_empty()), "Chart.yaml has no {field}");
    }
    assert!(yaml(&read("chart/values.yaml")).is_object());

    let server = orlop_test::Server::with_controllers(&[]).await.expect("an API server");
    apply_strictly(&server.client(), &yaml(manifests::NAMESPACE)).await;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("chart/templates");
    let mut templates = 0;
    for template in std::fs::read_dir(folder).expect("templates") {
        let name = template.expect("a template").file_name().into_string().expect("a name");
        assert!(name.ends_with(".yaml"), "{name}: helm renders .yaml, .yml, .tpl and .txt");
        templates += 1;
        for text in render(&name).split("\n---\n") {
            let object = yaml(text);
            let kind = object["kind"].as_str().expect("a kind");
            if kind == "Deployment" {
                let labels = &object["spec"]["template"]["metadata"]["labels"];
                assert_eq!(object["spec"]["selector"]["matchLabels"], *labels);
            }
            // Unknown and duplicate fields, names, and everything that the API validates.
            apply_strictly(&server.client(), &object).await;
        }
    }
    assert_eq!(templates, 2);
    // Definitions are applied as they are.
    for text in [manifests::SERVERS, manifests::COLLECTIONS] {
        assert!(!text.contains("{{"));
        apply_strictly(&server.client(), &yaml(text)).await;
    }
}

#[test]
fn columns_are_those_of_the_contract_and_wide_ones_more() {
    let columns = |text: &str, wide: bool| -> Vec<String> {
        let definition: CustomResourceDefinition = serde_saphyr::from_str(text).expect("a definition");
        let columns = definition.spec.versions[0].additional_printer_columns.clone().expect("columns");
        let shown = columns.into_iter().filter(|column| wide || column.priority.unwrap_or(0) == 0);
        shown.map(|column| column.name).collect()
    };
    assert_eq!(columns(manifests::SERVERS, false), ["Phase", "Age"]);
    assert_eq!(columns(manifests::COLLECTIONS, false), ["Age"]);
    assert_eq!(columns(manifests::SERVERS, true), ["Phase", "Age", "Store", "Generation", "Message"]);
    assert_eq!(columns(manifests::COLLECTIONS, true), ["Age", "Server", "Ready", "Documents", "Indexes"]);
}
