//! Discovery, dynamic objects, events, errors.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::events::v1::Event as RecordedEvent;
use kube::{
    Api, Discovery, Resource, ResourceExt,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
        PostParams, Preconditions,
    },
    discovery::{self, Scope},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use orlop_test::Server;
use serde_json::json;

use crate::{map, refusal};

#[tokio::test]
async fn dynamic_api_uses_discovered_kinds() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let client = server.client();
    let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let one_by_one = Discovery::new(client.clone()).run().await?;
    let aggregated = Discovery::new(client.clone()).run_aggregated().await?;
    for found in [&one_by_one, &aggregated] {
        let (resource, capabilities) =
            found.resolve_gvk(&gvk).ok_or_else(|| anyhow::anyhow!("no deployments"))?;
        assert_eq!((resource.plural.as_str(), &capabilities.scope), ("deployments", &Scope::Namespaced));
        assert!(capabilities.supports_operation("watch"));
        assert!(capabilities.subresources.iter().any(|(sub, _)| sub.plural.ends_with("scale")));
        assert!(found.groups().count() > 20);
    }
    let (resource, _) = discovery::pinned_kind(&client, &gvk).await?;
    let deployments = Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource);
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let object = DynamicObject::new("web", &resource)
        .data(json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}));
    let made = deployments.create(&PostParams::default(), &object).await?;
    assert_eq!(made.data["spec"]["replicas"], 1, "defaults are filled in");
    let mut scale = deployments.get_scale("web").await?;
    if let Some(spec) = scale.spec.as_mut() {
        spec.replicas = Some(3);
    }
    deployments.replace_scale("web", &PostParams::default(), &scale).await?;
    let status = json!({"status": {"replicas": 3}});
    let patched = deployments.patch_status("web", &PatchParams::default(), &Patch::Merge(status)).await?;
    assert_eq!(
        (&patched.data["spec"]["replicas"], &patched.data["status"]["replicas"]),
        (&json!(3), &json!(3))
    );
    // Of another kind, by a name that nothing has.
    let nothing = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Nothing"));
    let things = Api::<DynamicObject>::default_namespaced_with(client, &nothing);
    assert!(things.list(&ListParams::default()).await.is_err());
    Ok(())
}

#[tokio::test]
async fn recorded_events_are_selected_by_object() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let subject = maps.create(&PostParams::default(), &map("a", "k", "1")).await?;
    let recorder = Recorder::new(
        server.client(),
        Reporter { controller: "tester".into(), instance: Some("one".into()) },
    );
    let event = Event {
        type_: EventType::Warning,
        reason: "Odd".into(),
        note: Some("this is odd".into()),
        action: "Looking".into(),
        secondary: None,
    };
    // The same again is counted, not written twice.
    for _ in 0..3 {
        recorder.publish(&event, &subject.object_ref(&())).await?;
    }
    let recorded = Api::<RecordedEvent>::default_namespaced(server.client());
    let about = ListParams::default().fields("regarding.name=a,regarding.kind=ConfigMap");
    let found = recorded.list(&about).await?;
    assert_eq!(found.items.len(), 1);
    assert_eq!(found.items[0].note.as_deref(), Some("this is odd"));
    assert_eq!(found.items[0].series.as_ref().map(|series| series.count), Some(3));
    Ok(())
}

#[tokio::test]
async fn error_statuses_match_kubernetes() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let made = maps.create(&PostParams::default(), &map("a", "k", "1")).await?;
    let status = refusal(maps.create(&PostParams::default(), &map("a", "k", "1")).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(status.message, "configmaps \"a\" already exists");
    let status = refusal(maps.get("b").await);
    assert_eq!(
        (status.code, status.reason.as_str(), status.message.as_str()),
        (404, "NotFound", "configmaps \"b\" not found")
    );
    let mut stale = made.clone();
    stale.data = None;
    maps.replace("a", &PostParams::default(), &stale).await?;
    let status = refusal(maps.replace("a", &PostParams::default(), &made).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    let wrong_uid = DeleteParams::default()
        .preconditions(Preconditions { uid: Some("other".into()), resource_version: None });
    let status = refusal(maps.delete("a", &wrong_uid).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"), "{}", status.message);
    let pods = Api::<Pod>::default_namespaced(server.client());
    let status = refusal(pods.create(&PostParams::default(), &Pod::default()).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    let fields: Vec<String> = status
        .details
        .map(|details| details.causes)
        .unwrap_or_default()
        .into_iter()
        .map(|cause| cause.field)
        .collect();
    assert!(
        fields.contains(&"metadata.name".to_owned()) && fields.contains(&"spec.containers".to_owned()),
        "{fields:?}"
    );
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let shown = maps.create(&dry, &map("dry", "k", "1")).await?;
    assert!(shown.uid().is_some() && maps.get_opt("dry").await?.is_none());
    assert_eq!(
        maps.entry("a")
            .await?
            .and_modify(|map| map.labels_mut().clear())
            .get()
            .map(ResourceExt::name_any)
            .as_deref(),
        Some("a")
    );
    let gone = maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    assert!(gone.is_left(), "the list of what was deleted");
    Ok(())
}
