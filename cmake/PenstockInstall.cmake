# What `cmake --install` installs besides the library for producers, and the Debian package of both (`make deb`).
# Components: penstock (the program), penstock_producer (feeders/remote/producer/CMakeLists.txt), and wheel (what a Python
# package holds besides Python), which is installed only if it is named.
include(GNUInstallDirs)

# Everything that is installed. libpenstock_cuda.so is installed if it was built.
add_custom_target(penstock_installed DEPENDS penstock)
foreach(library IN ITEMS penstock_producer penstock_cuda)
  if(TARGET ${library})
    add_dependencies(penstock_installed ${library})
  endif()
endforeach()

if(BUILD_SHARED_LIBS)
  message(STATUS "Penstock: the program is not installed, since it needs the build's shared libraries (BUILD_SHARED_LIBS)")
else()
  install(TARGETS penstock RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT penstock)
  if(TARGET penstock_cuda)
    # The program looks in ../lib, whatever the value of CMAKE_INSTALL_LIBDIR.
    install(TARGETS penstock_cuda LIBRARY DESTINATION lib COMPONENT penstock OPTIONAL)
  endif()
  install(CODE "set(penstock_program [[$<TARGET_FILE:penstock>]])
set(penstock_folder [[${PROJECT_BINARY_DIR}/documents]])
set(penstock_data [[${CMAKE_INSTALL_DATADIR}]])
set(penstock_manuals [[${CMAKE_INSTALL_MANDIR}]])" COMPONENT penstock)
  install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/install_documents.cmake COMPONENT penstock)

  # The program of a wheel: the same objects without MPI, which has to be the MPI of the machine's mpirun
  # (python/README.md). no_mpi.cpp is linked first, so the linker leaves out mpi.cpp of the library, and then libmpi.
  add_executable(penstock_portable $<TARGET_OBJECTS:penstock> ${PROJECT_SOURCE_DIR}/trainer/cluster/no_mpi.cpp)
  target_link_options(penstock_portable PRIVATE LINKER:--as-needed)
  target_link_libraries(penstock_portable PRIVATE penstock::bench)
  add_dependencies(penstock_installed penstock_portable)
  install(PROGRAMS $<TARGET_FILE:penstock_portable> DESTINATION bin RENAME penstock COMPONENT wheel EXCLUDE_FROM_ALL)
  if(TARGET penstock_producer)
    install(PROGRAMS $<TARGET_FILE:penstock_producer> DESTINATION lib RENAME libpenstock_producer.so COMPONENT wheel
            EXCLUDE_FROM_ALL)
  endif()
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT penstock)

if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_CONTACT "Penstock's maintainers")
  set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR})
  set(CPACK_STRIP_FILES ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libhdf5-103-1 | libhdf5-310, openmpi-bin, openssh-client, python3")  # runs over several hosts; loaders
  include(CPack)
endif()
