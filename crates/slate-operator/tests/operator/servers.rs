//! Servers: their objects, phases and messages.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount},
    events::v1::Event,
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use slate_operator::api::{Phase, Server};

use crate::cluster::{Cluster, database, eventually};

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
async fn rocks_server_gets_a_volume_and_the_recreate_strategy() {
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
async fn store_changes_from_memory_to_rocks_and_rejected_objects_set_phase_error() {
    let cluster = Cluster::start(&[]).await;
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    let deployments = cluster.api::<Deployment>();
    let strategy = async |desired: &str| {
        eventually(async || {
            let deployment = deployments.get_opt("main-db").await.expect("get")?;
            let strategy = deployment.spec.strategy?;
            (strategy.type_.as_deref() == Some(desired)).then_some(strategy)
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
async fn objects_have_owner_references_and_restricted_security_contexts() {
    let cluster = Cluster::start(&[]).await;
    let spec = json!({ "store": "rocks", "storage": { "deletionPolicy": "Retain" },
                       "security": { "token": true, "tls": true } });
    cluster.create_server("main-db", spec).await;
    cluster.server_when("main-db", |server| server.phase().is_some()).await;
    let policy = cluster.api::<NetworkPolicy>().get("main-db").await.expect("the NetworkPolicy");
    assert_eq!(policy.owner_references()[0].kind, "Server");
    let policy = json!(policy.spec);
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["ingress"], json!([{ "ports": [{ "port": 9600, "protocol": "TCP" }] }]));
    assert!(policy["egress"].as_array().is_none_or(Vec::is_empty), "{policy}");
    let budget = cluster.api::<PodDisruptionBudget>().get("main-db").await.expect("the budget");
    assert_eq!(json!(budget.spec)["maxUnavailable"], 0);
    let account = cluster.api::<ServiceAccount>().get("main-db").await.expect("the ServiceAccount");
    assert_eq!(account.automount_service_account_token, Some(false));
    // A volume that is to be retained has no owner.
    let claim = cluster.api::<PersistentVolumeClaim>().get("main-db-data").await.expect("the claim");
    assert!(claim.owner_references().is_empty());
    for secret in ["main-db-token", "main-db-tls"] {
        let secret = cluster.api::<Secret>().get(secret).await.expect("the Secret");
        assert_eq!(secret.owner_references()[0].kind, "Server");
    }

    let deployment = cluster.api::<Deployment>().get("main-db").await.expect("the Deployment");
    let pod = json!(deployment.spec.template.spec);
    assert_eq!(pod["serviceAccountName"], "main-db");
    assert_eq!(
        (&pod["securityContext"]["runAsNonRoot"], &pod["securityContext"]["fsGroup"]),
        (&json!(true), &json!(65532))
    );
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    let volume = |name: &str| {
        let volumes = pod["volumes"].as_array().expect("volumes").iter();
        volumes.clone().find(|volume| volume["name"] == name).expect("the volume").clone()
    };
    assert_eq!(volume("data")["persistentVolumeClaim"]["claimName"], "main-db-data");
    for (name, path) in [("token", "/etc/slate/token"), ("tls", "/etc/slate/tls")] {
        assert_eq!(volume(name)["secret"]["secretName"], format!("main-db-{name}"));
        let mounts = container["volumeMounts"].as_array().expect("mounts");
        let mount = mounts.iter().find(|mount| mount["name"] == name).expect("the mount");
        assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(path), &json!(true)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn phase_message_condition_and_event_name_what_is_wrong() {
    // Accepts connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let cluster = Cluster::start(&[("acme/main-db", address)]).await;
    cluster.create_server("main-db", json!({ "store": "rocks" })).await;
    let message_when = async |part: &str| {
        let has_message = |server: &Server| {
            let status = server.status.as_ref();
            status.and_then(|status| status.message.as_deref()).is_some_and(|message| message.contains(part))
        };
        cluster.server_when("main-db", has_message).await.status.expect("a status")
    };
    let status = message_when("the volume is Pending: claim \"main-db-data\" is not bound").await;
    assert_eq!((status.phase, status.conditions[0].reason.as_str()), (Some(Phase::Rollout), "VolumePending"));
    let claims = cluster.api::<PersistentVolumeClaim>();
    let bound = json!({ "status": { "phase": "Bound" } });
    claims.patch_status("main-db-data", &PatchParams::default(), &Patch::Merge(&bound)).await.expect("patch");
    message_when("waiting for a pod").await;

    // What a node would say of the pod.
    let pod = json!({
        "metadata": { "name": "main-db-1", "labels": { "app.kubernetes.io/name": "slate", "app.kubernetes.io/instance": "main-db" } },
        "spec": { "serviceAccountName": "main-db", "containers": [{ "name": "slate-server", "image": "slate:test" }] },
    });
    let pods = cluster.api::<Pod>();
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("create");
    let waiting = async |reason: &str, detail: &str| {
        let last = json!({ "terminated": { "exitCode": 3, "message": "unknown store" } });
        let container = json!({ "name": "slate-server", "image": "slate:test", "imageID": "", "ready": false,
                                "restartCount": 4, "lastState": last,
                                "state": { "waiting": { "reason": reason, "message": detail } } });
        let status = json!({ "status": { "containerStatuses": [container] } });
        let patched = pods.patch_status("main-db-1", &PatchParams::default(), &Patch::Merge(&status)).await;
        patched.expect("patch");
    };
    for (reason, detail, condition, message) in [
        (
            "ImagePullBackOff",
            "no such image",
            "ImageNotFound",
            "image \"slate:test\" cannot be pulled: no such image",
        ),
        (
            "CrashLoopBackOff",
            "",
            "CrashLoop",
            "the server crashes (4 restarts, last exit code 3: unknown store)",
        ),
        ("CreateContainerConfigError", "secret not found", "ContainerError", "secret not found"),
    ] {
        waiting(reason, detail).await;
        let status = message_when(message).await;
        assert_eq!((status.phase, status.conditions[0].reason.as_str()), (Some(Phase::Error), condition));
    }
    let events = cluster.api::<Event>();
    for cause in ["ImageNotFound", "CrashLoop", "ContainerError"] {
        eventually(async || {
            let events = events.list(&ListParams::default()).await.expect("list").items;
            let names_the_cause = |event: &Event| {
                event.reason.as_deref() == Some(cause) && event.type_.as_deref() == Some("Warning")
            };
            events.iter().any(names_the_cause).then_some(())
        })
        .await;
    }

    // A pod that is ready by its probe and yet does not answer: the call has a time limit.
    waiting("ContainerCreating", "").await;
    cluster.finish_rollout("main-db").await;
    let status = message_when("the pod is ready but does not answer").await;
    assert_eq!(status.phase, Some(Phase::Rollout));
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn mongo_protocol_is_served_on_a_port_of_its_own_when_asked_for() {
    let cluster = Cluster::start(&[]).await;
    cluster.create_server("main-db", json!({ "store": "memory" })).await;
    let ports_when = async |expected: serde_json::Value| {
        eventually(async || {
            let service = cluster.api::<Service>().get_opt("main-db").await.expect("get")?;
            let policy = cluster.api::<NetworkPolicy>().get_opt("main-db").await.expect("get")?;
            let deployment = cluster.api::<Deployment>().get_opt("main-db").await.expect("get")?;
            let container = deployment.spec.template.spec?.containers.remove(0);
            let names = |ports: serde_json::Value, field: &str| -> serde_json::Value {
                ports.as_array().into_iter().flatten().map(|port| port[field].clone()).collect()
            };
            let open = [
                names(json!(service.spec?.ports), "port"),
                names(json!(container.ports), "containerPort"),
                names(json!(policy.spec)["ingress"][0]["ports"].clone(), "port"),
            ];
            let env = container.env.unwrap_or_default();
            let address = env.into_iter().find(|variable| variable.name == "SLATE_MONGO_ADDR");
            open.iter().all(|ports| *ports == expected).then(|| address.and_then(|address| address.value))
        })
        .await
    };
    assert_eq!(ports_when(json!([9600])).await, None);
    let servers = cluster.api::<Server>();
    let edit = async |mongo: serde_json::Value| {
        let edit = json!({ "spec": { "mongo": mongo } });
        servers.patch("main-db", &PatchParams::default(), &Patch::Merge(&edit)).await.expect("patch");
    };
    edit(json!({ "enabled": true })).await;
    assert_eq!(ports_when(json!([9600, 27017])).await.as_deref(), Some("0.0.0.0:27017"));
    edit(json!(null)).await;
    assert_eq!(ports_when(json!([9600])).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_secret_of_the_user_is_an_error_that_names_it() {
    let database = database().await;
    let cluster = Cluster::start(&[("acme/main-db", database.address().to_string())]).await;
    let secret = json!({
        "metadata": { "name": "main-db-tls" },
        "type": "kubernetes.io/tls",
        "stringData": { "tls.crt": "a certificate", "tls.key": "a key" },
    });
    let secrets = cluster.api::<Secret>();
    secrets
        .create(&PostParams::default(), &serde_json::from_value(secret).expect("a Secret"))
        .await
        .expect("create");
    cluster.create_server("main-db", json!({ "store": "memory", "security": { "tls": true } })).await;
    cluster.finish_rollout("main-db").await;
    let failed = cluster.server_when("main-db", |server| server.phase() == Some(Phase::Error)).await;
    let status = failed.status.expect("a status");
    assert_eq!(status.message.as_deref(), Some("Secret main-db-tls has no ca.crt"));
    assert_eq!(status.conditions[0].reason, "SecretInvalid");
    database.stop().await;
}
