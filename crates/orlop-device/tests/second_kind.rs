//! A kind from outside the crate has everything that GPUs have, and meets them nowhere.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

#[path = "../examples/nic/kind.rs"]
mod kind;

#[allow(clippy::all, unreachable_pub, missing_debug_implementations, reason = "generated")]
mod api {
    include!("../examples/nic/generated/example.nic.v1alpha1.rs");
}

use api::{nic_service_client::NicServiceClient, *};
use orlop_device::kinds::GPU;
use orlop_device_client::api::{Condition, ObjectMeta};
use support::{Calls, Fixture, Storage, gpu, refused};
use tonic::Code;

fn nic(name: &str) -> Nic {
    Nic {
        object_meta: Some(ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }),
        spec: Some(NicSpec { mac_address: "02:42:ac:11:00:02".into(), vlans: vec![7, 9] }),
        ..Nic::default()
    }
}

async fn check(storage: Storage) {
    let f = Fixture::start_with(storage, |config| config.kinds = vec![&GPU, &kind::NIC]).await;
    let mut gpus = f.client.clone();
    let mut nics = NicServiceClient::new(f.connection.clone());
    gpus.create(gpu("same-name")).await.unwrap();
    let request = WatchNicsRequest { namespace: None, opts: None };
    let mut watch = nics.watch_nics(request).await.unwrap().into_inner();

    let request = CreateNicRequest { nic: Some(nic("same-name")), opts: None };
    let made = nics.create_nic(request).await.unwrap().into_inner();
    assert_eq!(made.type_meta.as_ref().unwrap().kind, "NIC");
    assert_eq!(made.spec.as_ref().unwrap().vlans, [7, 9]);
    let event = watch.message().await.unwrap().unwrap();
    assert_eq!((&*event.r#type, event.object.as_ref()), ("ADDED", Some(&made)));

    let condition = Condition { r#type: "LinkUp".into(), status: "True".into(), ..Condition::default() };
    let status = NicStatus { conditions: vec![condition], speed_megabits: Some(400_000) };
    let request =
        UpdateNicStatusRequest { nic: Some(Nic { status: Some(status), ..nic("same-name") }), opts: None };
    let updated = nics.update_nic_status(request).await.unwrap().into_inner();
    let status = updated.status.as_ref().unwrap();
    assert_eq!(status.speed_megabits, Some(400_000));
    assert!(status.conditions[0].last_transition_time.is_some());
    assert_eq!(watch.message().await.unwrap().unwrap().r#type, "MODIFIED");

    let request = PatchNicRequest {
        name: "same-name".into(),
        patch_type: support::JSON_PATCH.into(),
        data: br#"[{"op":"add","path":"/spec/vlans/-","value":11}]"#.to_vec(),
        ..PatchNicRequest::default()
    };
    let patched = nics.patch_nic(request).await.unwrap().into_inner();
    assert_eq!(patched.spec.as_ref().unwrap().vlans, [7, 9, 11]);
    assert_eq!(patched.object_meta.as_ref().unwrap().generation(), 2);

    let mut bad = nic("bad");
    bad.spec.as_mut().unwrap().mac_address = "02:42".into();
    let request = CreateNicRequest { nic: Some(bad), opts: None };
    refused(
        nics.create_nic(request).await,
        Code::InvalidArgument,
        "spec.macAddress: Invalid value: \"02:42\"",
    );

    let request = DeleteNicRequest { name: "same-name".into(), ..DeleteNicRequest::default() };
    nics.delete_nic(request).await.unwrap();
    gpus.get("same-name").await.unwrap();
}

#[tokio::test]
async fn in_memory() {
    check(Storage::Memory).await;
}

#[tokio::test]
async fn on_disk() {
    check(Storage::Disk).await;
}
