//! The operator against an API server in this process, and a database in this process.

use std::{collections::HashMap, time::Duration};

use bson::doc;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Namespace, PersistentVolumeClaim, Secret, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use slate_operator::{
    Addresses, Options,
    api::{Collection, Phase, Server},
    manifests,
};
use slate_server::config::Config;

/// An API server with the definitions, and the operator running against it.
struct Cluster {
    _server: orlop_test::Server,
    client: Client,
    operator: tokio::task::JoinHandle<()>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.operator.abort();
    }
}

impl Cluster {
    async fn start(addresses: &[(&str, String)]) -> Self {
        // No controller runs Deployments: the tests say when a rollout is complete.
        let controllers = ["garbage-collector-controller", "namespace-controller"];
        let server = orlop_test::Server::with_controllers(&controllers).await.expect("an API server");
        let client = server.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for text in [manifests::SERVERS, manifests::COLLECTIONS] {
            let definition: CustomResourceDefinition = serde_saphyr::from_str(text).expect("a definition");
            definitions.create(&PostParams::default(), &definition).await.expect("create");
        }
        let acme: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": "acme" } })).expect("a namespace");
        Api::all(client.clone()).create(&PostParams::default(), &acme).await.expect("create");
        let addresses: HashMap<String, String> =
            addresses.iter().map(|(name, address)| ((*name).to_owned(), address.clone())).collect();
        let options = Options {
            image: "slate:test".to_owned(),
            lease_namespace: Some("default".to_owned()),
            addresses: Addresses::Fixed(addresses),
        };
        let run = slate_operator::run(client.clone(), options, std::future::pending());
        let operator = tokio::spawn(async move { run.await.expect("the operator") });
        Self { _server: server, client, operator }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), "acme")
    }

    async fn create_server(&self, name: &str, spec: serde_json::Value) {
        let server = json!({ "metadata": { "name": name }, "spec": spec });
        let server: Server = serde_json::from_value(server).expect("a Server");
        self.api::<Server>().create(&PostParams::default(), &server).await.expect("create");
    }

    async fn create_collection(&self, name: &str, indexes: &[&str]) {
        let spec = json!({ "server": "main-db", "indexes": indexes });
        let collection: Collection =
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))
                .expect("a Collection");
        self.api::<Collection>().create(&PostParams::default(), &collection).await.expect("create");
    }

    /// Does what the deployment controller and a node do once the pod runs.
    async fn finish_rollout(&self, name: &str) {
        let deployments = self.api::<Deployment>();
        let generation = eventually(async || deployments.get_opt(name).await.expect("get")).await;
        let status = json!({ "status": {
            "observedGeneration": generation.metadata.generation,
            "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        }});
        deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.expect("patch");
    }

    async fn server_when(&self, name: &str, accept: impl Fn(&Server) -> bool) -> Server {
        let servers = self.api::<Server>();
        eventually(async || Some(servers.get(name).await.expect("get")).filter(&accept)).await
    }

    async fn collection_when(&self, name: &str, accept: impl Fn(&Collection) -> bool) -> Collection {
        let collections = self.api::<Collection>();
        eventually(async || Some(collections.get(name).await.expect("get")).filter(&accept)).await
    }
}

/// Polls until there is a value, for at most a minute.
async fn eventually<T>(mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "timed out");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn is_ready(collection: &Collection) -> bool {
    let conditions =
        collection.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn database() -> slate_server::Server {
    slate_server::Server::start(Config::for_test()).await.expect("a database")
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_server_gets_deployment_and_service_and_becomes_ready() {
    let database = database().await;
    let cluster = Cluster::start(&[("acme/main-db", database.address().to_string())]).await;
    let resources =
        json!({ "requests": { "memory": "1Gi", "cpu": "500m" }, "limits": { "memory": "2Gi", "cpu": "1" } });
    cluster.create_server("main-db", json!({ "store": "memory", "resources": resources })).await;
    let server = cluster.server_when("main-db", |server| server.phase() == Some(Phase::Rollout)).await;
    let deployment = cluster.api::<Deployment>().get("main-db").await.expect("the Deployment");
    let owner = &deployment.owner_references()[0];
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("Server", server.metadata.uid.as_ref()));
    let spec = deployment.spec;
    assert_eq!(
        (spec.replicas, spec.strategy.and_then(|strategy| strategy.type_).as_deref()),
        (Some(1), Some("RollingUpdate"))
    );
    let container = &spec.template.spec.expect("a pod").containers[0];
    assert_eq!(container.image.as_deref(), Some("slate:test"));
    let probe = container.readiness_probe.as_ref().and_then(|probe| probe.exec.as_ref()?.command.clone());
    assert_eq!(probe.expect("a probe"), ["test", "-f", "/tmp/ready"]);
    let limits = container.resources.as_ref().and_then(|resources| resources.limits.clone()).expect("limits");
    assert_eq!(limits["memory"].0, "2Gi");
    let service = cluster.api::<Service>().get("main-db").await.expect("the Service").spec.expect("a spec");
    assert_eq!((service.type_.as_deref(), service.ports.expect("ports")[0].port), (Some("ClusterIP"), 9600));
    assert!(cluster.api::<PersistentVolumeClaim>().get_opt("main-db-data").await.expect("get").is_none());

    cluster.finish_rollout("main-db").await;
    let server = cluster.server_when("main-db", |server| server.phase() == Some(Phase::Ready)).await;
    let status = server.status.expect("a status");
    assert_eq!((status.ready_generation, status.observed_generation), (Some(1), Some(1)));
    assert_eq!(status.boot_id.as_deref(), Some(database.engine().boot_id()));

    // An edit rolls out again, and the generation follows.
    let edit = json!({ "spec": { "resources": { "limits": { "memory": "3Gi" } } } });
    let edited =
        cluster.api::<Server>().patch("main-db", &PatchParams::default(), &Patch::Merge(&edit)).await;
    assert_eq!(edited.expect("patch").metadata.generation, Some(2));
    cluster.server_when("main-db", |server| server.phase() == Some(Phase::Rollout)).await;
    cluster.finish_rollout("main-db").await;
    let ready =
        |server: &Server| server.status.as_ref().is_some_and(|status| status.ready_generation == Some(2));
    cluster.server_when("main-db", ready).await;
    database.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rocks_server_gets_a_volume_and_never_two_pods() {
    let cluster = Cluster::start(&[]).await;
    let spec = json!({ "store": "rocks", "storage": { "size": "2Gi", "storageClassName": "fast" },
                       "security": { "token": true, "tls": true } });
    cluster.create_server("main-db", spec).await;
    cluster.server_when("main-db", |server| server.phase().is_some()).await;
    let deployment = cluster.api::<Deployment>().get("main-db").await.expect("the Deployment").spec;
    assert_eq!(deployment.strategy.and_then(|strategy| strategy.type_).as_deref(), Some("Recreate"));
    let claim = cluster.api::<PersistentVolumeClaim>().get("main-db-data").await.expect("the claim");
    assert_eq!(claim.owner_references().len(), 1);
    let spec = claim.spec.expect("a spec");
    assert_eq!(spec.storage_class_name.as_deref(), Some("fast"));
    assert_eq!(
        spec.resources.and_then(|resources| resources.requests).expect("requests")["storage"].0,
        "2Gi"
    );
    let secret = cluster.api::<Secret>().get("main-db-token").await.expect("the token").data.expect("data");
    assert!(secret["token"].0.len() > 40);
    assert!(cluster.api::<Secret>().get("main-db-tls").await.is_ok());
    let pod = deployment.template.spec.expect("a pod");
    let env: Vec<_> =
        pod.containers[0].env.as_ref().expect("env").iter().map(|variable| variable.name.as_str()).collect();
    for variable in ["SLATE_DATA_DIR", "SLATE_TOKEN_FILE", "SLATE_TLS_CERT"] {
        assert!(env.contains(&variable), "{variable} in {env:?}");
    }
    for (change, message) in [
        (json!({ "spec": { "store": "memory", "storage": null } }), "store is immutable"),
        (json!({ "spec": { "storage": { "size": "1Gi" } } }), "size cannot shrink"),
        (json!({ "spec": { "storage": { "storageClassName": "slow" } } }), "storageClassName is immutable"),
    ] {
        let servers = cluster.api::<Server>();
        let refused = servers.patch("main-db", &PatchParams::default(), &Patch::Merge(&change)).await;
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains(message), "{refused}");
    }

    // A new token replaces the pod, which reads it at start only.
    let annotation = |deployment: Deployment| {
        let metadata = deployment.spec.template.metadata.unwrap_or_default();
        metadata.annotations.unwrap_or_default()["slate.io/token"].clone()
    };
    let deployments = cluster.api::<Deployment>();
    let before = annotation(deployments.get("main-db").await.expect("get"));
    cluster.api::<Secret>().delete("main-db-token", &DeleteParams::default()).await.expect("delete");
    // Nothing watches Secrets; whatever wakes the operator next will do.
    let edit = json!({ "metadata": { "labels": { "test": "wake" } } });
    cluster
        .api::<Server>()
        .patch("main-db", &PatchParams::default(), &Patch::Merge(&edit))
        .await
        .expect("patch");
    eventually(async || {
        let after = annotation(deployments.get("main-db").await.expect("get"));
        (after != before).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_becomes_rocks_and_a_refused_object_is_an_error_that_says_so() {
    let cluster = Cluster::start(&[]).await;
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    let deployments = cluster.api::<Deployment>();
    let strategy = async |wanted: &str| {
        eventually(async || {
            let deployment = deployments.get_opt("main-db").await.expect("get")?;
            let strategy = deployment.spec.strategy?;
            (strategy.type_.as_deref() == Some(wanted)).then_some(strategy)
        })
        .await
    };
    assert!(strategy("RollingUpdate").await.rolling_update.is_some());
    let edit = json!({ "spec": { "store": "rocks" } });
    let servers = cluster.api::<Server>();
    servers.patch("main-db", &PatchParams::default(), &Patch::Merge(&edit)).await.expect("patch");
    assert!(strategy("Recreate").await.rolling_update.is_none(), "refused beside Recreate");
    let claim = cluster.api::<PersistentVolumeClaim>().get("main-db-data").await.expect("the claim");
    let requests = claim.spec.and_then(|spec| spec.resources?.requests).expect("requests");
    assert_eq!(requests["storage"].0, "1Gi");

    // A name that is no label value is fine for a Server, not for its objects.
    let long = "a".repeat(64);
    cluster.create_server(&long, json!({ "store": "memory" })).await;
    let failed = cluster.server_when(&long, |server| server.phase() == Some(Phase::Error)).await;
    let status = failed.status.expect("a status");
    assert!(
        status.message.expect("a message").contains("must be no more than 63"),
        "{:?}",
        status.conditions
    );
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").expect("Ready");
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "ApplyFailed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_follow_their_server_spec_and_restarts() {
    let first = database().await;
    let address = first.address();
    let cluster = Cluster::start(&[("acme/main-db", address.to_string())]).await;
    cluster.create_collection("accounts", &["status", "score"]).await;
    let waiting = cluster.collection_when("accounts", |collection| collection.status.is_some()).await;
    assert_eq!(waiting.status.expect("a status").conditions[0].reason, "ServerNotFound");
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    cluster.finish_rollout("main-db").await;
    let ready = cluster.collection_when("accounts", is_ready).await;
    let status = ready.status.expect("a status");
    assert_eq!((status.server_generation, status.indexes.as_deref()), (Some(1), Some("2/2")));

    // Editing the indexes takes effect without a new generation of the Server.
    first.engine().insert("slate.accounts", &doc! { "status": "active" }).expect("insert");
    let edit = json!({ "spec": { "indexes": ["status", "tags.[]"] } });
    cluster
        .api::<Collection>()
        .patch("accounts", &PatchParams::default(), &Patch::Merge(&edit))
        .await
        .expect("patch");
    let observed = |collection: &Collection| {
        is_ready(collection)
            && collection.status.as_ref().is_some_and(|status| status.observed_generation == Some(2))
    };
    cluster.collection_when("accounts", observed).await;
    let names = |engine: &slate_server::Server| -> Vec<String> {
        let collection = engine.engine().collection("slate.accounts").expect("the collection");
        collection.indexes.iter().map(|index| index.spec.name.clone()).collect()
    };
    assert_eq!(names(&first), ["status_1", "tags_1"]);

    // A crashed pod comes back empty at the same address and generation.
    let before = first.engine().boot_id().to_owned();
    first.stop().await;
    let mut config = Config::for_test();
    config.addr = address;
    let second = slate_server::Server::start(config).await.expect("a database");
    // A label: an annotation would count as a new generation of the Deployment.
    let nudge = json!({ "metadata": { "labels": { "test": "restarted" } } });
    cluster
        .api::<Deployment>()
        .patch("main-db", &PatchParams::default(), &Patch::Merge(&nudge))
        .await
        .expect("patch");
    let restarted = |server: &Server| {
        server.status.as_ref().is_some_and(|status| status.boot_id.as_deref().is_some_and(|id| id != before))
    };
    cluster.server_when("main-db", restarted).await;
    eventually(async || second.engine().collection("slate.accounts").ok()).await;
    assert_eq!(names(&second), ["status_1", "tags_1"]);

    // Deletion drops the data, unless told to retain it.
    cluster.create_collection("kept", &[]).await;
    let retain = json!({ "spec": { "deletionPolicy": "Retain" } });
    cluster.collection_when("kept", is_ready).await;
    cluster
        .api::<Collection>()
        .patch("kept", &PatchParams::default(), &Patch::Merge(&retain))
        .await
        .expect("patch");
    for name in ["accounts", "kept"] {
        cluster.api::<Collection>().delete(name, &DeleteParams::default()).await.expect("delete");
        let collections = cluster.api::<Collection>();
        eventually(async || collections.get_opt(name).await.expect("get").is_none().then_some(())).await;
    }
    assert!(second.engine().collection("slate.accounts").is_err());
    assert!(second.engine().collection("slate.kept").is_ok());
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_index_builds_are_reported_and_not_repeated_at_once() {
    let database = database().await;
    let cluster = Cluster::start(&[("acme/main-db", database.address().to_string())]).await;
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    cluster.finish_rollout("main-db").await;
    cluster.create_collection("accounts", &[]).await;
    cluster.collection_when("accounts", is_ready).await;
    // No compound index can hold two arrays of one document.
    let parallel = doc! { "_id": 1, "a": [1, 2], "b": [3, 4] };
    database.engine().insert("slate.accounts", &parallel).expect("insert");
    let edit = async |indexes: serde_json::Value| {
        let patch = json!({ "spec": { "indexes": indexes } });
        let collections = cluster.api::<Collection>();
        collections.patch("accounts", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patch");
    };
    edit(json!(["a,b"])).await;
    let has_reason = |collection: &Collection, reason: &str| {
        let status = collection.status.as_ref();
        status.is_some_and(|status| status.conditions.iter().any(|condition| condition.reason == reason))
    };
    let failed = cluster.collection_when("accounts", |found| has_reason(found, "IndexBuildFailed")).await;
    let status = failed.status.expect("a status");
    assert_eq!(status.indexes.as_deref(), Some("0/1 (a,b failed)"));
    assert_eq!(status.conditions[0].status, "False");
    assert!(status.conditions[0].message.contains("parallel arrays"), "{}", status.conditions[0].message);
    // The reconciliation that the new status caused has left it at that.
    let failures = || database.engine().failed_builds("slate.accounts").expect("failures").len();
    assert_eq!(failures(), 1);

    // A change of the spec tries again at once; without the index, all is well.
    edit(json!([])).await;
    cluster.collection_when("accounts", |found| is_ready(found) && has_reason(found, "UpToDate")).await;
    assert_eq!(failures(), 0);
    database.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn example_ends_with_a_ready_server_and_two_indexed_collections() {
    let database = database().await;
    let cluster = Cluster::start(&[("acme/main-db", database.address().to_string())]).await;
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/slate/acme.yaml"))
            .expect("a file");
    let mut documents = text.split("---\n").skip(1);
    let server: Server = serde_saphyr::from_str(documents.next().expect("a Server")).expect("YAML");
    cluster.api::<Server>().create(&PostParams::default(), &server).await.expect("create");
    for collection in documents {
        let collection: Collection = serde_saphyr::from_str(collection).expect("YAML");
        cluster.api::<Collection>().create(&PostParams::default(), &collection).await.expect("create");
    }
    cluster.finish_rollout("main-db").await;
    cluster.server_when("main-db", |server| server.phase() == Some(Phase::Ready)).await;
    for (name, indexes) in [("accounts", vec!["status_1", "score_1"]), ("prospects", vec!["stage_1"])] {
        cluster.collection_when(name, is_ready).await;
        let collection = database.engine().collection(&format!("slate.{name}")).expect("the collection");
        let present: Vec<_> = collection.indexes.iter().map(|index| index.spec.name.as_str()).collect();
        assert_eq!(present, indexes);
    }
    database.stop().await;
}

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

/// Applies an object with strict validation: unknown and duplicate fields are errors.
async fn apply_strictly(client: &Client, object: &serde_json::Value) {
    let text =
        |path: &str| object.pointer(path).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    let resource = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk(group, version, &kind));
    let api: Api<kube::api::DynamicObject> = match object.pointer("/metadata/namespace") {
        Some(_) => Api::namespaced_with(client.clone(), &text("/metadata/namespace"), &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply("lint").validation_strict();
    let applied = api.patch(&text("/metadata/name"), &parameters, &Patch::Apply(object)).await;
    assert!(applied.is_ok(), "{kind}: {:?}", applied.err());
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
