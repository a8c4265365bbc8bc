//! Reads and writes of objects, in memory and on disk.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use orlop_device_client::api::*;
use support::{Calls, Fixture, JSON_PATCH, MERGE_PATCH, condition, gpu, labelled, meta, refused, version};
use tonic::Code;

on_both_storages! {
    async fn create_sets_system_fields_and_drops_the_status(f: Fixture) {
        let mut client = f.client.clone();
        let mut sent = labelled("a", &[("tier", "gold")]);
        sent.object_meta.as_mut().unwrap().uid = Some("mine".into());
        sent.object_meta.as_mut().unwrap().generation = Some(7);
        sent.status = Some(GpuStatus { conditions: vec![condition("Ready", "True")], recommended_action: None });
        let made = client.create(sent).await.unwrap();
        let of = meta(&made);
        assert_eq!((of.name(), of.namespace(), of.generation()), ("a", "default", 1));
        assert_eq!(of.uid().len(), 36);
        assert!(of.creation_timestamp.unwrap().seconds > 1_700_000_000);
        assert!(!of.resource_version().is_empty());
        assert_eq!(of.labels["tier"], "gold");
        assert_eq!(made.status, None);
        let kind = made.type_meta.as_ref().unwrap();
        assert_eq!((&*kind.kind, &*kind.api_version), ("GPU", "device.nvidia.com/v1alpha1"));
        assert_eq!(client.get("a").await.unwrap(), made);
        refused(client.create(gpu("a")).await, Code::AlreadyExists, "already exists");
    }

    async fn invalid_objects_are_rejected_with_field_errors(f: Fixture) {
        let mut client = f.client.clone();
        refused(client.create(gpu("")).await, Code::InvalidArgument, "metadata.name: Required value");
        refused(client.create(gpu("Not_A_Name")).await, Code::InvalidArgument, "metadata.name: Invalid value");
        refused(client.create(gpu("a/b")).await, Code::InvalidArgument, "metadata.name: Invalid value");
        let mut bad = gpu("a");
        bad.spec.as_mut().unwrap().uuid = "GPU-what".into();
        refused(client.create(bad).await, Code::InvalidArgument, "spec.uuid: Invalid value: \"GPU-what\"");
        let without = Gpu { spec: None, ..gpu("a") };
        refused(client.create(without).await, Code::InvalidArgument, "spec.uuid: Required value");
        let labels = labelled("a", &[("no good", "x")]);
        refused(client.create(labels).await, Code::InvalidArgument, "metadata.labels");
        let mut elsewhere = gpu("a");
        elsewhere.object_meta.as_mut().unwrap().namespace = Some("../x".into());
        refused(client.create(elsewhere).await, Code::InvalidArgument, "metadata.namespace");
        let mut versioned = gpu("a");
        versioned.object_meta.as_mut().unwrap().resource_version = Some("5".into());
        refused(client.create(versioned).await, Code::InvalidArgument, "metadata.resourceVersion: Forbidden");
        let other = TypeMeta { kind: "Pod".into(), api_version: String::new() };
        let other = Gpu { type_meta: Some(other), ..gpu("a") };
        refused(client.create(other).await, Code::InvalidArgument, "\"Pod\" is not \"GPU\"");
        let nothing = client.create_gpu(CreateGpuRequest::default()).await;
        refused(nothing, Code::InvalidArgument, "no object");

        client.create(gpu("a")).await.unwrap();
        let status = GpuStatus {
            conditions: vec![condition("Ready", "Perhaps"), condition("", "True"), condition("Ready", "True")],
            recommended_action: None,
        };
        let status = Gpu { status: Some(status), ..gpu("a") };
        let result = client.update_status(status).await;
        let message = result.as_ref().unwrap_err().message().to_owned();
        refused(result, Code::InvalidArgument, "status.conditions[0].status: Unsupported value: \"Perhaps\"");
        assert!(message.contains("status.conditions[1].type: Required value"), "{message}");
        assert!(message.contains("status.conditions[2].type: Duplicate value: \"Ready\""), "{message}");
    }

    async fn object_over_the_size_limit_is_resource_exhausted(f: Fixture) {
        let mut client = f.client.clone();
        let mut large = gpu("a");
        large.object_meta.as_mut().unwrap().annotations.insert("a".into(), "x".repeat(3 << 20));
        refused(client.create(large).await, Code::ResourceExhausted, "too large");
        let mut large = gpu("a");
        large.object_meta.as_mut().unwrap().annotations.insert("a".into(), "x".repeat(300 << 10));
        refused(client.create(large).await, Code::InvalidArgument, "metadata.annotations: Too long");
    }

    async fn update_sets_spec_labels_and_annotations_and_keeps_absent_fields(f: Fixture) {
        let mut client = f.client.clone();
        let mut first = labelled("a", &[("tier", "gold")]);
        first.object_meta.as_mut().unwrap().annotations.insert("note".into(), "kept".into());
        let made = client.create(first).await.unwrap();
        let status = GpuStatus { conditions: vec![condition("Ready", "True")], recommended_action: Some("X".into()) };
        client.update_status(Gpu { status: Some(status), ..gpu("a") }).await.unwrap();

        // Name and spec only: the public server wipes labels and annotations here.
        let mut next = gpu("a");
        next.spec.as_mut().unwrap().uuid = "GPU-99".into();
        next.status = Some(GpuStatus::default());
        let updated = client.update(next).await.unwrap();
        assert_eq!(meta(&updated).labels["tier"], "gold");
        assert_eq!(meta(&updated).annotations["note"], "kept");
        assert_eq!(updated.spec.as_ref().unwrap().uuid, "GPU-99");
        assert_eq!(updated.status.as_ref().unwrap().recommended_action(), "X", "the status is not for Update");
        assert_eq!(meta(&updated).uid(), meta(&made).uid());
        assert_eq!(meta(&updated).creation_timestamp, meta(&made).creation_timestamp);
        assert_eq!(meta(&updated).generation(), 2);

        // Labels only: no new generation.
        let relabelled = Gpu { spec: None, ..labelled("a", &[("tier", "tin")]) };
        let updated = client.update(relabelled).await.unwrap();
        assert_eq!(meta(&updated).labels.len(), 1);
        assert_eq!(meta(&updated).labels["tier"], "tin");
        assert_eq!(meta(&updated).generation(), 2);
        assert_eq!(updated.spec.as_ref().unwrap().uuid, "GPU-99");
        refused(client.update(gpu("missing")).await, Code::NotFound, "\"missing\" not found");
    }

    async fn no_op_update_does_not_write(f: Fixture) {
        let mut client = f.client.clone();
        let made = client.create(labelled("a", &[("tier", "gold")])).await.unwrap();
        let same = client.update(labelled("a", &[("tier", "gold")])).await.unwrap();
        assert_eq!(same, made);
        let status = GpuStatus { conditions: vec![condition("Ready", "True")], recommended_action: None };
        let with = client.update_status(Gpu { status: Some(status.clone()), ..gpu("a") }).await.unwrap();
        assert_ne!(version(&with), version(&made));
        let again = client.update_status(Gpu { status: Some(status), ..gpu("a") }).await.unwrap();
        assert_eq!(again, with);
        let patched = client.patch("a", MERGE_PATCH, r#"{"spec":{"uuid":"GPU-1234-abcd"}}"#, &[]).await.unwrap();
        assert_eq!(patched, with);
        let list = client.list(ListOptions::default()).await.unwrap();
        assert_eq!(list.list_meta.unwrap().resource_version(), version(&with), "no revision was made");
    }

    async fn update_status_changes_only_the_status(f: Fixture) {
        let mut client = f.client.clone();
        client.create(labelled("a", &[("tier", "gold")])).await.unwrap();
        let mut sent = labelled("a", &[("tier", "tin")]);
        sent.spec.as_mut().unwrap().uuid = "GPU-99".into();
        sent.status = Some(GpuStatus { conditions: vec![condition("Ready", "True")], recommended_action: None });
        let updated = client.update_status(sent).await.unwrap();
        assert_eq!(meta(&updated).labels["tier"], "gold");
        assert_eq!(updated.spec.as_ref().unwrap().uuid, "GPU-1234-abcd");
        assert_eq!(meta(&updated).generation(), 1);
        let first = updated.status.unwrap().conditions[0].last_transition_time;
        assert!(first.is_some(), "the server fills the time in");

        // The same status with another reason: the time of the transition stays.
        let mut again = condition("Ready", "True");
        again.reason = "StillFine".into();
        let sent = Gpu { status: Some(GpuStatus { conditions: vec![again], recommended_action: None }), ..gpu("a") };
        let updated = client.update_status(sent).await.unwrap();
        assert_eq!(updated.status.unwrap().conditions[0].last_transition_time, first);
        refused(client.update_status(gpu("a")).await, Code::InvalidArgument, "status: Required value");
    }

    async fn write_with_stale_resource_version_conflicts(f: Fixture) {
        let mut client = f.client.clone();
        let made = client.create(gpu("a")).await.unwrap();
        let mut first = made.clone();
        first.spec.as_mut().unwrap().uuid = "GPU-1".into();
        let mut second = made.clone();
        second.spec.as_mut().unwrap().uuid = "GPU-2".into();
        client.update(first).await.unwrap();
        refused(client.update(second.clone()).await, Code::Aborted, "has been modified");
        second.status = Some(GpuStatus::default());
        refused(client.update_status(second.clone()).await, Code::Aborted, "has been modified");
        let stale = format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"spec":{{"uuid":"GPU-3"}}}}"#, version(&made));
        refused(client.patch("a", MERGE_PATCH, &stale, &[]).await, Code::Aborted, "has been modified");
        // Without a version the write is unconditional.
        second.object_meta.as_mut().unwrap().resource_version = None;
        assert_eq!(client.update(second).await.unwrap().spec.unwrap().uuid, "GPU-2");
        let mut odd = gpu("a");
        odd.object_meta.as_mut().unwrap().resource_version = Some("one".into());
        refused(client.update(odd).await, Code::InvalidArgument, "resource version");
    }

    async fn concurrent_unconditional_writes_keep_all_labels(f: Fixture) {
        let mut client = f.client.clone();
        client.create(gpu("a")).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..20 {
            let mut client = f.client.clone();
            tasks.spawn(async move {
                let patch = format!(r#"{{"metadata":{{"labels":{{"l{number}":"x"}}}}}}"#);
                client.patch("a", MERGE_PATCH, &patch, &[]).await.unwrap();
            });
        }
        while tasks.join_next().await.transpose().unwrap().is_some() {}
        assert_eq!(meta(&client.get("a").await.unwrap()).labels.len(), 20);
    }

    async fn name_namespace_and_uid_are_immutable(f: Fixture) {
        let mut client = f.client.clone();
        let made = client.create(gpu("a")).await.unwrap();
        let mut other = made.clone();
        other.object_meta.as_mut().unwrap().uid = Some("11111111-1111-4111-8111-111111111111".into());
        refused(client.update(other).await, Code::InvalidArgument, "metadata.uid");
        for field in ["name", "namespace", "uid"] {
            let patch = format!(r#"{{"metadata":{{"{field}":"other"}}}}"#);
            let result = client.patch("a", MERGE_PATCH, &patch, &[]).await;
            refused(result, Code::InvalidArgument, &format!("metadata.{field}: Invalid value: \"other\": field is immutable"));
        }
        assert_eq!(client.get("a").await.unwrap(), made);
    }

    async fn json_and_merge_patches_apply_or_fail_with_a_reason(f: Fixture) {
        let mut client = f.client.clone();
        let made = client.create(labelled("a", &[("tier", "gold"), ("rack", "7")])).await.unwrap();
        let patched = client
            .patch("a", JSON_PATCH, r#"[{"op":"test","path":"/spec/uuid","value":"GPU-1234-abcd"},
                {"op":"remove","path":"/metadata/labels/rack"},{"op":"add","path":"/metadata/annotations","value":{"a":"b"}},
                {"op":"replace","path":"/spec/uuid","value":"GPU-5"}]"#, &[])
            .await
            .unwrap();
        assert_eq!(meta(&patched).labels.len(), 1);
        assert_eq!(meta(&patched).annotations["a"], "b");
        assert_eq!((patched.spec.unwrap().uuid, meta(&made).generation() + 1), ("GPU-5".into(), 2));

        // Without the subresource the status cannot be touched, with it nothing else can.
        let both = r#"{"spec":{"uuid":"GPU-6"},"status":{"recommendedAction":"DRAIN"}}"#;
        let patched = client.patch("a", MERGE_PATCH, both, &["status"]).await.unwrap();
        assert_eq!(patched.status.as_ref().unwrap().recommended_action(), "DRAIN");
        assert_eq!(patched.spec.as_ref().unwrap().uuid, "GPU-5");
        let patched = client.patch("a", MERGE_PATCH, r#"{"spec":{"uuid":"GPU-7"},"status":null}"#, &[]).await.unwrap();
        assert_eq!(patched.spec.as_ref().unwrap().uuid, "GPU-7");
        assert_eq!(patched.status.as_ref().unwrap().recommended_action(), "DRAIN");
        let labels = client.patch("a", MERGE_PATCH, r#"{"metadata":{"labels":{"tier":null}}}"#, &[]).await.unwrap();
        assert!(meta(&labels).labels.is_empty(), "a patch can remove what an update keeps");

        let before = client.get("a").await.unwrap();
        let invalid = Code::InvalidArgument;
        for kind in ["application/strategic-merge-patch+json", "application/apply-patch+yaml", ""] {
            let result = client.patch("a", kind, "{}", &[]).await;
            assert!(result.as_ref().unwrap_err().message().starts_with("unsupported media type:"));
            refused(result, invalid, "unsupported media type");
        }
        let unprocessable = [
            (JSON_PATCH, r#"[{"op":"test","path":"/spec/uuid","value":"GPU-0"}]"#),
            (JSON_PATCH, r#"[{"op":"remove","path":"/spec/nothing"}]"#),
            (JSON_PATCH, r#"[{"op":"replace","path":"/metadata","value":5}]"#),
            (MERGE_PATCH, r#"{"spec":{"uuid":5}}"#),
            (MERGE_PATCH, r#"{"spec":"text"}"#),
        ];
        for (kind, patch) in unprocessable {
            let result = client.patch("a", kind, patch, &[]).await;
            assert!(result.as_ref().unwrap_err().message().starts_with("unprocessable content:"), "{patch}: {result:?}");
            refused(result, invalid, "unprocessable content");
        }
        refused(client.patch("a", JSON_PATCH, "{}", &[]).await, invalid, "invalid patch");
        refused(client.patch("a", MERGE_PATCH, "[]", &[]).await, invalid, "invalid patch");
        refused(client.patch("a", MERGE_PATCH, "{}", &["scale"]).await, invalid, "subresource \"scale\"");
        refused(client.patch("a", MERGE_PATCH, r#"{"metadata":{"labels":{"x":5}}}"#, &[]).await, invalid, "metadata.labels[x]");
        refused(client.patch("missing", MERGE_PATCH, "{}", &[]).await, Code::NotFound, "not found");
        assert_eq!(client.get("a").await.unwrap(), before);
    }

    async fn patch_is_bounded_by_the_object_size_limit(f: Fixture) {
        let mut client = f.client.clone();
        client.create(gpu("a")).await.unwrap();
        let mut operations = vec![format!(r#"{{"op":"add","path":"/metadata/x","value":{:?}}}"#, "y".repeat(1000))];
        for number in 0..64 {
            operations.push(format!(r#"{{"op":"copy","from":"/metadata","path":"/metadata/x{number}"}}"#));
        }
        let patch = format!("[{}]", operations.join(","));
        refused(client.patch("a", JSON_PATCH, &patch, &[]).await, Code::InvalidArgument, "unprocessable content");
        let deep = format!(r#"{{"status":{}{}}}"#, r#"{"a":"#.repeat(5000), "}".repeat(5000));
        refused(client.patch("a", MERGE_PATCH, &deep, &[]).await, Code::InvalidArgument, "invalid patch");
    }

    async fn delete_checks_its_preconditions(f: Fixture) {
        let mut client = f.client.clone();
        let made = client.create(gpu("a")).await.unwrap();
        let delete = |uid: Option<&str>, version: Option<&str>| DeleteGpuRequest {
            name: "a".into(),
            namespace: None,
            opts: Some(DeleteOptions {
                preconditions: Some(Preconditions {
                    uid: uid.map(str::to_owned),
                    resource_version: version.map(str::to_owned),
                }),
            }),
        };
        refused(client.delete_gpu(delete(Some("other"), None)).await, Code::Aborted, "uid in the precondition");
        let newer = client.patch("a", MERGE_PATCH, r#"{"metadata":{"labels":{"x":"y"}}}"#, &[]).await.unwrap();
        refused(client.delete_gpu(delete(None, Some(&version(&made)))).await, Code::Aborted, "resource version in the precondition");
        client.delete_gpu(delete(Some(meta(&made).uid()), Some(&version(&newer)))).await.unwrap();
        refused(client.get("a").await, Code::NotFound, "gpus.device.nvidia.com \"a\" not found");
        refused(client.delete("a").await, Code::NotFound, "not found");
        // A new object of the same name is another object.
        let again = client.create(gpu("a")).await.unwrap();
        assert_ne!(meta(&again).uid(), meta(&made).uid());
    }

    async fn object_without_namespace_is_in_default(f: Fixture) {
        let mut client = f.client.clone();
        for namespace in [None, Some("one"), Some("two")] {
            let mut gpu = gpu("a");
            gpu.object_meta.as_mut().unwrap().namespace = namespace.map(str::to_owned);
            client.create(gpu).await.unwrap();
        }
        assert_eq!(meta(&client.get("a").await.unwrap()).namespace(), "default");
        let get = GetGpuRequest { name: "a".into(), namespace: Some("two".into()), opts: None };
        let found = client.get_gpu(get).await.unwrap().into_inner().gpu.unwrap();
        assert_eq!(meta(&found).namespace(), "two");
        let all = client.list(ListOptions::default()).await.unwrap();
        let namespaces: Vec<_> = all.items.iter().map(|gpu| meta(gpu).namespace().to_owned()).collect();
        assert_eq!(namespaces, ["default", "one", "two"]);
        let one = ListGpusRequest { namespace: Some("one".into()), opts: None };
        assert_eq!(client.list_gpus(one).await.unwrap().into_inner().gpu_list.unwrap().items.len(), 1);
        let odd = ListGpusRequest { namespace: Some("o/ne".into()), opts: None };
        refused(client.list_gpus(odd).await, Code::InvalidArgument, "namespace");
    }

    async fn list_selects_by_labels_and_resource_version(f: Fixture) {
        let mut client = f.client.clone();
        let empty = client.list(ListOptions::default()).await.unwrap();
        assert_eq!(empty.type_meta.unwrap().kind, "GPUList");
        let before = empty.list_meta.unwrap().resource_version().to_owned();
        let a = client.create(labelled("a", &[("tier", "gold"), ("rack", "7")])).await.unwrap();
        client.create(labelled("b", &[("tier", "tin"), ("rack", "9")])).await.unwrap();
        client.create(gpu("c")).await.unwrap();
        let names = |list: &GpuList| list.items.iter().map(|gpu| meta(gpu).name().to_owned()).collect::<Vec<_>>().join(" ");
        for (selector, expected) in [
            ("", "a b c"), ("tier=gold", "a"), ("tier in (gold,tin)", "a b"), ("tier!=gold", "b c"), ("!tier", "c"),
            ("rack>7", "b"), ("tier,rack<8", "a"), ("tier=lead", ""),
        ] {
            let opts = ListOptions { label_selector: Some(selector.into()), ..ListOptions::default() };
            assert_eq!(names(&client.list(opts).await.unwrap()), expected, "{selector:?}");
        }
        let bad = ListOptions { label_selector: Some("tier in gold".into()), ..ListOptions::default() };
        refused(client.list(bad).await, Code::InvalidArgument, "label selector");

        let at = |version: &str, how: &str| ListOptions {
            resource_version: Some(version.into()),
            resource_version_match: Some(how.into()).filter(|how: &String| !how.is_empty()),
            ..ListOptions::default()
        };
        let exact = client.list(at(&version(&a), "Exact")).await.unwrap();
        assert_eq!(names(&exact), "a", "the public server ignores Exact");
        assert_eq!(exact.list_meta.unwrap().resource_version(), version(&a));
        let selected = ListOptions { label_selector: Some("tier=gold".into()), ..at(&version(&a), "Exact") };
        assert_eq!(names(&client.list(selected).await.unwrap()), "a");
        for how in ["", "NotOlderThan"] {
            assert_eq!(names(&client.list(at(&version(&a), how)).await.unwrap()), "a b c");
            assert_eq!(names(&client.list(at("0", how)).await.unwrap()), "a b c");
        }
        if before != version(&a) {
            assert_eq!(names(&client.list(at(&version(&a), "Exact")).await.unwrap()), "a");
        }
        let invalid = Code::InvalidArgument;
        refused(client.list(at("x", "")).await, invalid, "resource version \"x\"");
        refused(client.list(at("0", "Exact")).await, invalid, "\"Exact\" is forbidden");
        refused(client.list(at("", "Exact")).await, invalid, "forbidden unless resourceVersion");
        refused(client.list(at(&version(&a), "Roughly")).await, invalid, "\"Roughly\" is unknown");
        let future = (version(&a).parse::<i64>().unwrap() + 1_000_000).to_string();
        refused(client.list(at(&future, "Exact")).await, Code::OutOfRange, "too large resource version");
        let get = GetGpuRequest { name: "a".into(), namespace: None, opts: Some(GetOptions { resource_version: Some(future) }) };
        refused(client.get_gpu(get).await, Code::OutOfRange, "too large resource version");
    }
}
