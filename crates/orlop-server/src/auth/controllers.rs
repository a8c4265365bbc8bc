//! Users that in-process controllers act as: the service accounts of kube-controller-manager's controllers, with the
//! roles that the bootstrap policy gives those.

use orlop_api::user::UserInfo;

/// Group of in-process controllers, which may read everything: kube-controller-manager's controllers read through
/// informers that its own user shares among them.
const READERS: &str = "orlop:controllers";

/// User of kube-controller-manager itself, which the service account token controller acts as.
const MANAGER: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";

/// Controllers whose service account in `kube-system` has another name.
const SERVICE_ACCOUNTS: &[(&str, &str)] = &[
    ("bootstrap-signer-controller", "bootstrap-signer"),
    ("certificatesigningrequest-approving-controller", "certificate-controller"),
    ("certificatesigningrequest-cleaner-controller", "certificate-controller"),
    ("certificatesigningrequest-signing-controller", "certificate-controller"),
    ("daemonset-controller", "daemon-set-controller"),
    ("endpoints-controller", "endpoint-controller"),
    ("endpointslice-mirroring-controller", "endpointslicemirroring-controller"),
    ("garbage-collector-controller", "generic-garbage-collector"),
    ("horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler"),
    (
        "kube-apiserver-serving-clustertrustbundle-publisher-controller",
        "kube-apiserver-serving-clustertrustbundle-publisher",
    ),
    ("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"),
    ("node-ipam-controller", "node-controller"),
    ("node-lifecycle-controller", "node-controller"),
    ("persistentvolume-attach-detach-controller", "attachdetach-controller"),
    ("persistentvolume-binder-controller", "persistent-volume-binder"),
    ("persistentvolume-protection-controller", "pv-protection-controller"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection-controller"),
    ("pod-garbage-collector-controller", "pod-garbage-collector"),
    ("podcertificaterequest-cleaner-controller", "podcertificaterequestcleaner"),
    ("replicationcontroller-controller", "replication-controller"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("serviceaccount-controller", "service-account-controller"),
    ("taint-eviction-controller", "node-controller"),
    ("token-cleaner-controller", "token-cleaner"),
];

/// Returns the user that an in-process controller acts as. None is a member of `system:masters`.
pub fn controller_user(controller: &str) -> UserInfo {
    match controller {
        "serviceaccount-token-controller" => controller_manager_user(),
        SCHEDULER => UserInfo::authenticated("system:kube-scheduler", [READERS.to_owned()]),
        _ => {
            let account = SERVICE_ACCOUNTS.iter().find(|(name, _)| *name == controller);
            let account = account.map_or(controller, |(_, account)| account);
            let mut user = UserInfo::service_account("kube-system", account);
            user.groups.push(READERS.to_owned());
            user
        }
    }
}

/// Returns the user that in-process controllers share: for informers, events and leases.
pub fn controller_manager_user() -> UserInfo {
    UserInfo::authenticated(MANAGER, [READERS.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_have_the_service_accounts_of_kubernetes() {
        let user = |controller| controller_user(controller).name;
        assert_eq!(user("job-controller"), "system:serviceaccount:kube-system:job-controller");
        assert_eq!(user("taint-eviction-controller"), "system:serviceaccount:kube-system:node-controller");
        assert_eq!(user("kube-scheduler"), "system:kube-scheduler");
        assert_eq!(user("serviceaccount-token-controller"), "system:kube-controller-manager");
    }
}
