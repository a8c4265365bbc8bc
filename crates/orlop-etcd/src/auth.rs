//! The Auth service, as in an etcd with authentication disabled and without users.
//!
//! TLS client certificates authenticate clients. Users and roles cannot be added, since nothing would enforce them.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::{
    errors::{AUTH_NOT_ENABLED, ROLE_NOT_FOUND, ROOT_USER_NOT_EXIST, USER_NOT_FOUND},
    node::Node,
    pb::etcdserverpb::{self as pb, auth_server::Auth},
};

/// Implements `etcdserverpb.Auth`.
#[derive(Clone, Debug)]
pub(crate) struct AuthService {
    pub(crate) node: Arc<Node>,
}

fn unsupported() -> Status {
    Status::unimplemented("orlop: users and roles are not supported; use TLS client certificates")
}

/// Implements the service. The listed methods always fail with one error.
macro_rules! auth_service {
    ($($call:ident($request:ident) -> $response:ident = $error:expr;)*) => {
        #[tonic::async_trait]
        impl Auth for AuthService {
            async fn auth_enable(
                &self,
                _: Request<pb::AuthEnableRequest>,
            ) -> Result<Response<pb::AuthEnableResponse>, Status> {
                Err(ROOT_USER_NOT_EXIST.into())
            }

            async fn auth_disable(
                &self,
                _: Request<pb::AuthDisableRequest>,
            ) -> Result<Response<pb::AuthDisableResponse>, Status> {
                Ok(Response::new(pb::AuthDisableResponse { header: self.node.header_now().await? }))
            }

            async fn auth_status(
                &self,
                _: Request<pb::AuthStatusRequest>,
            ) -> Result<Response<pb::AuthStatusResponse>, Status> {
                let header = self.node.header_now().await?;
                Ok(Response::new(pb::AuthStatusResponse { header, enabled: false, auth_revision: 1 }))
            }

            async fn authenticate(
                &self,
                _: Request<pb::AuthenticateRequest>,
            ) -> Result<Response<pb::AuthenticateResponse>, Status> {
                Err(AUTH_NOT_ENABLED.into())
            }

            async fn user_list(
                &self,
                _: Request<pb::AuthUserListRequest>,
            ) -> Result<Response<pb::AuthUserListResponse>, Status> {
                let header = self.node.header_now().await?;
                Ok(Response::new(pb::AuthUserListResponse { header, users: Vec::new() }))
            }

            async fn role_list(
                &self,
                _: Request<pb::AuthRoleListRequest>,
            ) -> Result<Response<pb::AuthRoleListResponse>, Status> {
                let header = self.node.header_now().await?;
                Ok(Response::new(pb::AuthRoleListResponse { header, roles: Vec::new() }))
            }

            $(async fn $call(
                &self,
                _: Request<pb::$request>,
            ) -> Result<Response<pb::$response>, Status> {
                Err($error)
            })*
        }
    };
}

auth_service! {
    user_add(AuthUserAddRequest) -> AuthUserAddResponse = unsupported();
    user_delete(AuthUserDeleteRequest) -> AuthUserDeleteResponse = USER_NOT_FOUND.into();
    user_change_password(AuthUserChangePasswordRequest) -> AuthUserChangePasswordResponse = USER_NOT_FOUND.into();
    user_get(AuthUserGetRequest) -> AuthUserGetResponse = USER_NOT_FOUND.into();
    user_grant_role(AuthUserGrantRoleRequest) -> AuthUserGrantRoleResponse = USER_NOT_FOUND.into();
    user_revoke_role(AuthUserRevokeRoleRequest) -> AuthUserRevokeRoleResponse = USER_NOT_FOUND.into();
    role_add(AuthRoleAddRequest) -> AuthRoleAddResponse = unsupported();
    role_get(AuthRoleGetRequest) -> AuthRoleGetResponse = ROLE_NOT_FOUND.into();
    role_delete(AuthRoleDeleteRequest) -> AuthRoleDeleteResponse = ROLE_NOT_FOUND.into();
    role_grant_permission(AuthRoleGrantPermissionRequest) -> AuthRoleGrantPermissionResponse = ROLE_NOT_FOUND.into();
    role_revoke_permission(AuthRoleRevokePermissionRequest) -> AuthRoleRevokePermissionResponse = ROLE_NOT_FOUND.into();
}
