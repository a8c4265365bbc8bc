//! Users that in-process controllers act as: the service accounts of kube-controller-manager's controllers, with the
//! roles that the bootstrap policy gives those.

use orlop_api::user::UserInfo;

/// Group of in-process controllers, which may read everything: kube-controller-manager's controllers read through
/// informers that its own user shares among them.
const READERS: &str = "orlop:controllers";

/// Controllers and their service accounts in `kube-system`. Controllers that are not here act as a member of
/// `system:masters`: workload controllers, whose calls have not been compared with their roles yet, and compose, which
/// writes whatever kinds its graphs name.
const SERVICE_ACCOUNTS: &[(&str, &str)] = &[
    ("certificatesigningrequest-approving-controller", "certificate-controller"),
    ("clusterrole-aggregation-controller", "clusterrole-aggregation-controller"),
    ("garbage-collector-controller", "generic-garbage-collector"),
    ("namespace-controller", "namespace-controller"),
    ("resourcequota-controller", "resourcequota-controller"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("serviceaccount-controller", "service-account-controller"),
    ("validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status-controller"),
];

/// Returns the user that an in-process controller acts as.
pub fn controller_user(controller: &str) -> UserInfo {
    match SERVICE_ACCOUNTS.iter().find(|(name, _)| *name == controller) {
        Some((_, account)) => {
            let mut user = UserInfo::service_account("kube-system", account);
            user.groups.push(READERS.to_owned());
            user
        }
        None => UserInfo::master("system:kube-controller-manager"),
    }
}
