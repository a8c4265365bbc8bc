//! Rights of the controllers in the server's process.

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::{Api, api::ListParams};
use orlop_server::auth::controller_user;
use orlop_test::Server;

#[tokio::test]
async fn every_controller_is_a_user_with_a_role_and_none_a_master() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let everything = ListParams::default();
    let bindings = Api::<ClusterRoleBinding>::all(server.client()).list(&everything).await?;
    let of_cluster = bindings.items.iter().flat_map(|binding| binding.subjects.iter().flatten());
    // Those that need a namespace only have their role there.
    let bindings = Api::<RoleBinding>::all(server.client()).list(&everything).await?;
    let of_namespaces = bindings.items.iter().flat_map(|binding| binding.subjects.iter().flatten());
    let is_bound = |name: &str| {
        let mut subjects = of_cluster.clone().chain(of_namespaces.clone());
        subjects.any(|subject| match subject.kind.as_str() {
            "User" => subject.name == name,
            "ServiceAccount" => {
                let namespace = subject.namespace.as_deref().unwrap_or_default();
                name == format!("system:serviceaccount:{namespace}:{}", subject.name)
            }
            _ => false,
        })
    };
    for controller in orlop_controllers::names() {
        let user = controller_user(controller);
        assert!(!user.is_master(), "{controller}");
        assert!(is_bound(&user.name), "{controller}: {} has no role", user.name);
    }
    Ok(())
}
